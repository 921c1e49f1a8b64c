-- question: How much of a worker's communication does its computation hide?
-- row: a run, a worker and a step
-- inputs: steps, worker_hosts, events, host_activity
-- column: run_id; run
-- column: worker; label of the worker
-- column: step; number of the training step, from 0
-- column: measured_by; events: the program logged its computation; estimate: it did not
-- column: step_ms ms; duration of the step
-- column: compute_ms ms; events: sum of compute, forward and backward events; estimate: step_ms - wire_ms
-- column: communicate_ms ms; events: sum of communicate and allreduce events; estimate: wire_ms
-- column: wire_ms ms; base windows of the step in which the worker sends or receives payload; null without traffic of the worker
-- column: overlap_ms ms; those of them within its computation; null for estimates
-- column: overlap_share share; overlap_ms over wire_ms; null for estimates
-- column: wire_share_of_step share; wire_ms over step_ms
-- column: window_ms ms; length of a base window: the resolution of wire_ms and overlap_ms
-- A base window belongs to where its middle is. Of several events at a time each counts in compute_ms and
-- communicate_ms. There is no traffic of a worker whose label is no host's.
WITH activity AS MATERIALIZED (
    FROM host_activity
), windows AS (
    SELECT run_id, any_value(window_ns) AS window_ns
    FROM activity
    GROUP BY run_id
), intervals AS (  -- whole steps, and the computation in them
    SELECT run_id, worker, step, 'step' AS kind, start_ns, end_ns FROM steps
    UNION ALL
    SELECT run_id, worker, step, 'compute', start_ns, end_ns
    FROM events
    WHERE kind IN ('compute', 'forward', 'backward')
), stretched AS (
    SELECT run_id, host_ip, worker, step, kind, start_ns, end_ns,
           unnest(range(start_ns // (60 * window_ns), end_ns // (60 * window_ns) + 1)) * 60 * window_ns AS stretch_start_ns
    FROM intervals
    JOIN worker_hosts USING (run_id, worker)
    JOIN windows USING (run_id)
), counted AS (
    SELECT run_id, worker, step, kind, window_ns,
           least(greatest(round((start_ns - stretch_start_ns) / window_ns), 0), 60)::BIGINT AS first_bit,
           least(greatest(round((end_ns - stretch_start_ns) / window_ns), 0), 60)::BIGINT AS end_bit,
           bit_count((sent | received) & ((1::BIGINT << end_bit) - (1::BIGINT << first_bit))) AS active
    FROM stretched
    JOIN activity USING (run_id, host_ip, stretch_start_ns)
), wire AS (
    SELECT run_id, worker, step,
           coalesce(sum(active * window_ns) FILTER (kind = 'step'), 0) / 1e6 AS wire_ms,
           coalesce(sum(active * window_ns) FILTER (kind = 'compute'), 0) / 1e6 AS overlap_ms
    FROM counted
    GROUP BY run_id, worker, step
), phases AS (
    SELECT run_id, worker, step,
           sum(end_ns - start_ns) FILTER (kind IN ('compute', 'forward', 'backward')) / 1e6 AS compute_ms,
           sum(end_ns - start_ns) FILTER (kind IN ('communicate', 'allreduce')) / 1e6 AS communicate_ms
    FROM events
    GROUP BY run_id, worker, step
), measured AS (
    SELECT run_id, worker, step, (end_ns - start_ns) / 1e6 AS step_ms, p.compute_ms, p.communicate_ms,
           CASE WHEN host_ip IS NOT NULL AND window_ns IS NOT NULL THEN coalesce(wire_ms, 0) END AS wire_ms, overlap_ms,
           window_ns / 1e6 AS window_ms, p.compute_ms IS NOT NULL AS by_events
    FROM steps
    LEFT JOIN phases AS p USING (run_id, worker, step)
    LEFT JOIN worker_hosts USING (run_id, worker)
    LEFT JOIN windows USING (run_id)
    LEFT JOIN wire USING (run_id, worker, step)
)
SELECT run_id, worker, step, CASE WHEN by_events THEN 'events' ELSE 'estimate' END AS measured_by, step_ms,
       CASE WHEN by_events THEN compute_ms WHEN wire_ms IS NOT NULL THEN greatest(step_ms - wire_ms, 0) END AS compute_ms,
       CASE WHEN by_events THEN communicate_ms ELSE wire_ms END AS communicate_ms,
       wire_ms,
       CASE WHEN by_events AND wire_ms IS NOT NULL THEN coalesce(overlap_ms, 0) END AS overlap_ms,
       CASE WHEN by_events THEN coalesce(overlap_ms, 0) / nullif(wire_ms, 0) END AS overlap_share,
       wire_ms / nullif(step_ms, 0) AS wire_share_of_step,
       window_ms
FROM measured
ORDER BY run_id, worker, step
