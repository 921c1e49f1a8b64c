-- question: Has each run a training log, and if not, are the steps that its traffic shows sure enough to take its place?
-- subject: steps
-- row: a run
-- inputs: runs, logged_steps, inferred_steps, jobs
-- answer: steps_from, steps, problem
-- column: run_id from runs
-- column: steps_from; log; traffic: inferred steps that are sure; none: neither
-- column: steps steps; steps of the log, or inferred ones, also where they are not sure; null where there are none
-- column: confidence share; that of inferred_steps, or of jobs where found_by is bytes; null for a run with a log, and without inferred steps
-- column: problem; why inferred steps do not take the place of a log; null where there is a log, or they do
-- column: found_by; of inferred steps that do: pauses (inferred_steps) or repeated bytes (job_steps): bytes
-- Inferred steps are sure where hosts wait for each other in each step, the confidence is at least 0.9, and no second inference
-- says otherwise: jobs finds one job with as many steps, or none. Where they are not, those of the only job are, if its confidence is at least 0.9 and it has five or more. Of the
-- 329 runs of data/dataset, if their logs are not read, 233 are sure (2026-11-29): 214 have as many steps as the logs have ends of steps, 19
-- have one more or one fewer.
WITH thresholds AS (
    SELECT 0.9 AS least_confidence,
           5 AS least_steps  -- of jobs; four need long pauses, which a part of a step may have
), inferred AS (
    SELECT run_id, nullif(count(step), 0) AS steps, any_value(confidence) AS confidence, bool_or(structured) AS structured,
           any_value(is_synchronous) AS is_synchronous, any_value(evidence) AS evidence
    FROM inferred_steps()
    GROUP BY run_id
), of_jobs AS (
    SELECT run_id, count(*) AS jobs, any_value(steps) AS job_steps, any_value(confidence) AS job_confidence,
           any_value(has_same_steps) AS has_same_steps
    FROM jobs
    GROUP BY run_id
), judged AS (
    SELECT run_id, l.steps AS logged, i.steps AS found, confidence, job_steps, job_confidence,
           CASE WHEN l.steps IS NOT NULL THEN NULL
                WHEN NOT structured THEN evidence
                WHEN is_synchronous IS NULL THEN evidence
                WHEN confidence < least_confidence THEN format('confidence {} is below {:.1f}; {}', floor(1000 * confidence) / 1000, least_confidence, evidence)
                WHEN jobs > 1 THEN format('{} jobs are in the traffic (query jobs)', jobs)
                WHEN NOT has_same_steps THEN format('pauses show {} steps, repeated bytes {} (query jobs)', i.steps, job_steps)
           END AS problem,
           problem IS NOT NULL AND coalesce(jobs = 1 AND job_confidence >= least_confidence AND job_steps >= least_steps, false) AS is_by_bytes
    FROM runs
    LEFT JOIN logged_steps AS l USING (run_id)
    LEFT JOIN inferred AS i USING (run_id)
    LEFT JOIN of_jobs USING (run_id)
    CROSS JOIN thresholds
)
SELECT run_id, CASE WHEN logged IS NOT NULL THEN 'log' WHEN problem IS NULL OR is_by_bytes THEN 'traffic' ELSE 'none' END AS steps_from,
       CASE WHEN is_by_bytes THEN job_steps ELSE coalesce(logged, found) END::BIGINT AS steps,
       CASE WHEN is_by_bytes THEN job_confidence WHEN logged IS NULL THEN confidence END AS confidence,
       CASE WHEN NOT is_by_bytes THEN problem END AS problem,
       CASE WHEN is_by_bytes THEN 'bytes' WHEN logged IS NULL AND problem IS NULL THEN 'pauses' END AS found_by
FROM judged
ORDER BY run_id
