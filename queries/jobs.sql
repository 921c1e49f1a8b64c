-- question: Which training jobs share the hosts of a run, and how long is a step of each?
-- subject: collectives
-- row: a run and a job
-- inputs: job_periods, logged_steps, inferred_steps
-- optional: logged_steps, inferred_steps
-- answer: job, hosts, period_ms, confidence
-- column: run_id from job_periods
-- column: job from job_periods
-- column: hosts from job_periods
-- column: flows from job_periods
-- column: steps from job_periods
-- column: period_ms from job_periods
-- column: steady_share from job_periods
-- column: seen_share from job_periods
-- column: other_steps steps; of the log, without one of inferred_steps; null where neither has any, and where the run has several jobs
-- column: has_same_steps; whether steps and other_steps differ by 2 at most: the first and the last may lack bytes; null where other_steps is
-- column: agreed_share share; 1 where has_same_steps is true or null, or pauses alone show fewer by less than a third; else the lesser over the greater of steps and other_steps
-- column: confidence share; steady_share times seen_share times agreed_share: no calibrated probability
-- column: problem; why its steps are doubtful, and where the other steps are; null where agreed_share is 1
-- A job is a set of flows that repeat their bytes in each step, and take their steps together. Two jobs of one step time
-- that never drift are one here. What hosts without a capture send to each other is not seen. Bytes that are no step's are those of half a step, or
-- of two: pauses that show fewer steps by less than a third have missed some.
WITH thresholds AS (
    SELECT 2 AS most_apart,    -- steps
           1.5 AS least_factor -- between counts of which one is of another unit
), others AS (
    SELECT run_id, coalesce(l.steps, i.steps) AS other_steps, l.steps IS NULL AS by_pauses
    FROM (SELECT run_id, count(step) AS steps FROM inferred_steps() WHERE structured GROUP BY run_id) AS i
    FULL JOIN logged_steps AS l USING (run_id)
    SEMI JOIN (SELECT run_id FROM job_periods GROUP BY run_id HAVING count(*) = 1) USING (run_id)
)
SELECT j.*, other_steps, abs(steps - other_steps) <= most_apart AS has_same_steps,
       CASE WHEN has_same_steps OR (by_pauses AND steps BETWEEN other_steps AND least_factor * other_steps) THEN 1.0
            ELSE coalesce(least(steps, other_steps) / greatest(steps, other_steps), 1) END AS agreed_share,
       steady_share * seen_share * agreed_share AS confidence,
       CASE WHEN agreed_share < 1
            THEN format('its flows repeat their bytes in {} steps, {} {}; so a collective may be of several steps, or a part of one. {}{}',
                        steps, CASE WHEN by_pauses THEN 'pauses show' ELSE 'the log shows' END, other_steps,
                        CASE WHEN by_pauses THEN 'Query inferred_steps has those of the pauses' ELSE 'Table steps has those of the log' END,
                        CASE WHEN other_steps > steps THEN '; something may recur after every few steps, as a checkpoint or an evaluation: '
                                                           || 'ingest a part between two of these (editcap -A, -B)' ELSE '' END) END AS problem
FROM job_periods AS j
CROSS JOIN thresholds
LEFT JOIN others USING (run_id)
ORDER BY run_id, job
