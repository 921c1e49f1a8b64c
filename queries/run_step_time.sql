-- question: How long does a training step of a run take, how many samples per second is that, and which attributes may explain it?
-- row: a run
-- inputs: step_time_rows, run_attributes
-- figure: cheng figs. 2 to 10
-- column: run_id; run
-- column: step_ms ms; mean of the run's steps, as in step_time_rows; null without a log
-- column: samples_per_s samples/s; workers x batch_size over the mean step; null where one is unknown
-- column: model_bytes bytes; bytes of trainable parameters, which is what a step exchanges
-- column: model_size_mb MB (10^6 bytes); nominal model size as published
-- column: nominal_bytes bytes; model_size_mb in bytes
-- column: framework_backend; framework and backend, joined by a hyphen
-- column: batch_size samples; samples that a worker uses in one step
-- column: topology; declared topology
-- column: workers hosts; declared number of workers
-- column: delay_ms ms; one-way delay added between any two hosts
-- column: loss_pct percent; packets dropped on purpose
-- column: bandwidth_mbit Mbit/s; rate that every link was shaped to
-- column: model; name of the trained model
-- column: optimizer; optimizer
-- column: offload; whether the run was captured with segmentation offload (segmentation_offload)
-- column: source; origin of the run: capture, testbed, simulation, ns3 or synthetic
WITH step_time AS (
    SELECT run_id, avg(step_ms) AS mean_ms
    FROM step_time_rows
    GROUP BY run_id
)
SELECT run_id, mean_ms AS step_ms, workers * batch_size / nullif(mean_ms, 0) * 1e3 AS samples_per_s,
       run_attributes.* EXCLUDE (run_id)
FROM run_attributes
LEFT JOIN step_time USING (run_id)
ORDER BY run_id
