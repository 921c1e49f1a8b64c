-- question: How long does each training step take, how many samples per second is that, and which attributes may explain it?
-- row: a run and a step of any of its workers; a run without steps has one row, with nulls
-- inputs: steps, run_attributes
-- figure: cheng figs. 2 to 10, with a row per step
-- column: run_id; run
-- column: step; number of the step; null for a run without steps
-- column: step_ms ms; duration of the step, mean over the workers that logged it
-- column: samples_per_s samples/s; workers x batch_size over step_ms: what all workers together train on
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
