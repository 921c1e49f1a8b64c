-- question: How long does each training step take, how many samples per second is that, and which attributes may explain it?
-- subject: steps
-- row: a run and a step of any of its workers, without the first steps; a run without others has one row, with nulls
-- inputs: steps, run_attributes
-- param: skip_steps BIGINT = 1; first steps of each run that are left out: connections, code and caches are new in them
-- figure: cheng figs. 2 to 10, with a row per step
-- column: run_id
-- column: step; number of the step; null for a run without others than the first
-- column: step_ms ms; duration of the step, mean over the workers that logged it
-- column: samples_per_s samples/s; workers x batch_size over step_ms: what all workers together train on
-- column: model_bytes
-- column: model_size_mb
-- column: nominal_bytes
-- column: framework_backend
-- column: batch_size
-- column: topology
-- column: workers
-- column: ranks_per_host
-- column: delay_ms
-- column: loss_pct
-- column: bandwidth_mbit
-- column: model
-- column: optimizer
-- column: offload
-- column: source
-- column: congestion_control
-- column: epochs
-- column: variant
-- column: planned_steps
-- column: steps
-- column: finished
-- column: fault
-- column: law_factor
-- column: disturbance
-- In data/dataset the first step takes 4.4 times as long as the median of the others, in the median run, and 42 times in one.
-- A log's first step whose start is only estimated is left out in any case.
WITH numbered AS (
    SELECT *, dense_rank() OVER (PARTITION BY run_id ORDER BY step) AS place
    FROM steps
), step_time AS (
    SELECT run_id, step, avg(end_ns - start_ns) / 1e6 AS step_ms
    FROM numbered
    WHERE place > $skip_steps AND start_source IS DISTINCT FROM 'estimated'
    GROUP BY run_id, step
)
SELECT run_id, step, step_ms, workers * batch_size / nullif(step_ms, 0) * 1e3 AS samples_per_s,
       run_attributes.* EXCLUDE (run_id)
FROM run_attributes
LEFT JOIN step_time USING (run_id)
ORDER BY run_id, step
