-- question: How much is transmitted in each training step, and which attributes of the run may explain it?
-- subject: volume
-- row: a run and a step of any of its workers; a run without steps has one row, with nulls
-- inputs: steps, step_cable_volume, run_attributes
-- param: response VARCHAR = cable; bytes that are counted: on the cable (cable), as captured (wire), or payload
-- figure: zerwas section VI, equation (1) with a row per step
-- column: run_id
-- column: step; number of the step; null for a run without steps
-- column: step_bytes bytes; bytes of the step, 0 for a step without a packet; null where the run has no packets in steps, and on the cable where they are not known
-- column: worker_bytes bytes; step_bytes over workers: what a worker sends
-- column: implied_bytes bytes; step_bytes over law_factor: the model's size that the volume implies by the law of the declared collective
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
WITH run_steps AS (
    SELECT DISTINCT run_id, step
    FROM steps
), volume AS (
    SELECT run_id, step,
           CASE $response WHEN 'cable' THEN cable_bytes WHEN 'wire' THEN wire_bytes WHEN 'payload' THEN payload_bytes
                          ELSE error('response is cable, wire or payload, not ' || $response) END AS bytes
    FROM step_cable_volume
), run_has_volume AS (
    SELECT DISTINCT run_id, true AS has_volume
    FROM step_cable_volume
)
SELECT run_id, step,
       CASE WHEN volume.step IS NOT NULL THEN bytes WHEN has_volume THEN 0 END::DOUBLE AS step_bytes,
       step_bytes / nullif(workers, 0) AS worker_bytes, step_bytes / law_factor AS implied_bytes,
       run_attributes.* EXCLUDE (run_id)
FROM run_attributes
LEFT JOIN run_steps USING (run_id)
LEFT JOIN run_has_volume USING (run_id)
LEFT JOIN volume USING (run_id, step)
ORDER BY run_id, step
