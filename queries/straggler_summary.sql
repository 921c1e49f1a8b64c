-- question: Is it always the same worker that a run waits for, and how much of its time does that take?
-- subject: steps
-- row: a run and a worker; one row with null worker for a run in which nobody waits (stragglers)
-- inputs: runs, steps, step_time_rows, stragglers, straggler_chance
-- answer: worker, more_often_than_chance, cost_ms
-- param: skip_steps BIGINT = 1; first steps of each run that are left out, as in step_time_rows
-- column: run_id from steps
-- column: synchronous; whether the workers wait for each other (stragglers); null where that is unknown
-- column: worker; label of the worker; null in a run in which nobody waits
-- column: steps steps; steps with a start of the worker, without the first (step_time_rows)
-- column: times_last steps; steps in which it was the last to start
-- column: share_last share; times_last over steps
-- column: more_often_than_chance; whether it is last most often and that is more often than chance (straggler_chance); null where too few steps tell
-- column: p_value; of its run, as in straggler_chance
-- column: mean_slack_ms ms; mean time by which it started before the last worker
-- column: cost_ms ms; sum of the costs of the steps in which it was last
-- column: mean_cost_ms ms; cost_ms over times_last
-- column: cost_share share; cost_ms over the time from the start of the first of these steps to the last one's end
-- column: run_cost_share share; cost of all workers together over the same time
-- The first step is left out, as in the duration of a step, compare and verdicts: connections and caches are new in it, and all
-- may wait for one worker much longer than in any other.
WITH counted AS (
    SELECT run_id, step
    FROM step_time_rows(skip_steps := $skip_steps)
), durations AS (
    SELECT run_id, (max(end_ns) - min(start_ns)) / 1e6 AS duration_ms
    FROM steps
    SEMI JOIN counted USING (run_id, step)
    GROUP BY run_id
), starts AS MATERIALIZED (
    FROM stragglers
), waiting AS (
    SELECT run_id, any_value(synchronous) AS synchronous
    FROM starts
    GROUP BY run_id
), workers AS (
    SELECT run_id, worker, count(step) AS steps,
           count(*) FILTER (is_last) AS times_last, avg(slack_ms) AS mean_slack_ms,
           coalesce(sum(cost_ms) FILTER (is_last), 0) AS cost_ms
    FROM starts
    SEMI JOIN counted USING (run_id, step)
    GROUP BY run_id, worker
)
SELECT run_id, synchronous, worker, steps, times_last, times_last / steps AS share_last,
       CASE WHEN verdict <> 'too few steps'
            THEN verdict = 'more often than chance' AND times_last = max(times_last) OVER (PARTITION BY run_id) END
           AS more_often_than_chance,
       p_value, mean_slack_ms,
       cost_ms, cost_ms / nullif(times_last, 0) AS mean_cost_ms,
       cost_ms / nullif(duration_ms, 0) AS cost_share,
       sum(cost_ms) OVER (PARTITION BY run_id) / nullif(duration_ms, 0) AS run_cost_share
FROM runs
LEFT JOIN waiting USING (run_id)
LEFT JOIN workers USING (run_id)
LEFT JOIN straggler_chance(skip_steps := $skip_steps) USING (run_id)
LEFT JOIN durations USING (run_id)
ORDER BY run_id, worker
