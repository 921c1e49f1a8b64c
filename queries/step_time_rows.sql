-- question: How long does each training step take, how many samples per second is that, and which attributes may explain it?
-- row: a run and a step of any of its workers; a run without steps has one row, with nulls
-- inputs: steps, run_attributes
-- figure: cheng figs. 2 to 10, with a row per step
-- column: run_id
-- column: step; number of the step; null for a run without steps
-- column: step_ms ms; duration of the step, mean over the workers that logged it
-- column: samples_per_s samples/s; workers x batch_size over step_ms: what all workers together train on
-- column: model_bytes
-- column: model_size_mb
-- column: nominal_bytes
-- column: framework_backend
-- column: batch_size
-- column: topology
-- column: workers
-- column: delay_ms
-- column: loss_pct
-- column: bandwidth_mbit
-- column: model
-- column: optimizer
-- column: offload
-- column: source
-- A log's first step whose start is only estimated is left out.
WITH step_time AS (
    SELECT run_id, step, avg(end_ns - start_ns) / 1e6 AS step_ms
    FROM steps
    WHERE start_source IS DISTINCT FROM 'estimated'
    GROUP BY run_id, step
)
SELECT run_id, step, step_ms, workers * batch_size / nullif(step_ms, 0) * 1e3 AS samples_per_s,
       run_attributes.* EXCLUDE (run_id)
FROM run_attributes
LEFT JOIN step_time USING (run_id)
ORDER BY run_id, step
