-- question: How long does a training step of a run take, how many samples per second is that, and which attributes may explain it?
-- subject: steps
-- row: a run
-- inputs: step_time_rows, run_attributes
-- param: skip_steps BIGINT = 1; first steps of each run that are left out, as in step_time_rows
-- figure: cheng figs. 2 to 10
-- column: run_id
-- column: step_ms ms; mean, not median as in replay_facts and simulate --like, of the run's steps without the first (step_time_rows); null where the log has no others
-- column: samples_per_s samples/s; workers x batch_size over the mean step; null where one is unknown
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
WITH step_time AS (
    SELECT run_id, avg(step_ms) AS mean_ms
    FROM step_time_rows(skip_steps := $skip_steps)
    GROUP BY run_id
)
SELECT run_id, mean_ms AS step_ms, workers * batch_size / nullif(mean_ms, 0) * 1e3 AS samples_per_s,
       run_attributes.* EXCLUDE (run_id)
FROM run_attributes
LEFT JOIN step_time USING (run_id)
ORDER BY run_id
