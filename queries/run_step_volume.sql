-- question: How much does a run transmit per training step, and which attributes may explain it?
-- row: a run
-- inputs: logged_steps, step_volume, run_attributes
-- figure: zerwas section VI, the data of equation (1)
-- column: run_id; run
-- column: step_bytes bytes; mean wire bytes of a step, over all steps in the logs; null without packets in steps
-- column: model_bytes bytes; bytes of trainable parameters, which is what a step exchanges
-- column: model_size_mb MB (10^6 bytes); nominal model size as published
-- column: nominal_bytes bytes; model_size_mb in bytes
-- column: framework_backend; framework and backend, joined by a hyphen
-- column: batch_size samples; samples that a worker uses in one step
-- column: topology; declared topology
-- column: workers hosts; declared number of workers
-- column: delay_ms ms; one-way delay added to every link
-- column: loss_pct percent; packets dropped on purpose
-- column: bandwidth_mbit Mbit/s; rate that every link was shaped to
-- column: model; name of the trained model
-- column: optimizer; optimizer
-- column: source; origin of the run: capture, testbed, simulation, ns3 or synthetic
WITH volume AS (
    SELECT run_id, sum(wire_bytes) AS wire_bytes
    FROM step_volume
    GROUP BY run_id
)
SELECT run_id,
       wire_bytes / nullif(steps, 0) AS step_bytes,  -- steps without a packet count too
       run_attributes.* EXCLUDE (run_id)
FROM run_attributes
LEFT JOIN logged_steps USING (run_id)
LEFT JOIN volume USING (run_id)
ORDER BY run_id
