-- question: Is it always the same worker that a run waits for, and how much of its time does that take?
-- row: a run and a worker; one row with null worker for a run in which nobody waits (stragglers)
-- inputs: runs, steps, stragglers
-- cost_ms adds up what the steps cost in which the worker was last; cost_share is part of the time from the first step's
-- begin to the last one's end, run_cost_share that of all workers together.
WITH durations AS (
    SELECT run_id, (max(end_ns) - min(start_ns)) / 1e6 AS duration_ms
    FROM steps
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
    WHERE step IS NOT NULL
    GROUP BY run_id, worker
)
SELECT run_id, synchronous, worker, steps, times_last, times_last / steps AS share_last, mean_slack_ms,
       cost_ms, cost_ms / nullif(times_last, 0) AS mean_cost_ms,
       cost_ms / nullif(duration_ms, 0) AS cost_share,
       sum(cost_ms) OVER (PARTITION BY run_id) / nullif(duration_ms, 0) AS run_cost_share
FROM runs
LEFT JOIN waiting USING (run_id)
LEFT JOIN workers USING (run_id)
LEFT JOIN durations USING (run_id)
ORDER BY run_id, worker
