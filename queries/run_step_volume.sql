-- question: How much does a run transmit per training step, and which attributes may explain it?
-- subject: volume
-- row: a run
-- inputs: step_cable_volume, spilled_payload, run_attributes, step_synchrony
-- optional: step_synchrony
-- param: response VARCHAR = cable; bytes that are counted: on the cable (cable), as captured (wire), or payload
-- figure: zerwas section VI, the data of equation (1)
-- column: run_id
-- column: step_bytes bytes; the number to cite: mean bytes of a step, of all flows with headers and acknowledgements, over all steps in the logs (of asynchronous workers over the mean number of steps in a log, as in conservation), with the payload that belongs to them but was sent outside (spilled_payload) and its share of the headers; null without packets in steps, and on the cable where a step's are not known
-- column: worker_bytes bytes; step_bytes over workers: what a worker sends
-- column: implied_bytes bytes; step_bytes over law_factor: the model's size that the volume implies by the law of the declared collective
-- column: model_bytes
-- column: model_size_mb
-- column: nominal_bytes
-- column: framework_backend
-- column: batch_size
-- column: topology
-- column: workers from run_attributes
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
-- This is the number to cite: of all flows, with headers, acknowledgements and what is sent again, so above payload by some percent.
-- With response wire it is what a capture shows, with payload what the program sent, to be compared with a law.
-- Steps are those of the logs; without a log --infer-steps takes those that the traffic shows. docs/questions.md compares the numbers.
WITH counted AS (
    SELECT run_id, payload_bytes,
           CASE $response WHEN 'cable' THEN cable_bytes WHEN 'wire' THEN wire_bytes WHEN 'payload' THEN payload_bytes
                          ELSE error('response is cable, wire or payload, not ' || $response) END AS bytes
    FROM step_cable_volume
), volume AS (
    SELECT run_id, CASE WHEN count(*) = count(bytes) THEN sum(bytes) END AS bytes, sum(payload_bytes) AS payload_bytes
    FROM counted
    GROUP BY run_id
), outside AS (
    SELECT run_id, sum(early_bytes + late_bytes) AS spilled_bytes
    FROM spilled_payload
    GROUP BY run_id
)
SELECT run_id,
       -- what a step leaves in its socket is in the next one, but of the last step; steps without a packet count too
       bytes * (1 + coalesce(spilled_bytes / nullif(payload_bytes, 0), 0)) / nullif(coalesce(worker_steps, steps), 0) AS step_bytes,
       step_bytes / nullif(workers, 0) AS worker_bytes, step_bytes / law_factor AS implied_bytes,
       run_attributes.* EXCLUDE (run_id)
FROM run_attributes
LEFT JOIN volume USING (run_id)
LEFT JOIN outside USING (run_id)
-- without a step in common a log counts the updates of a server: each is a step of one worker
LEFT JOIN (SELECT run_id, worker_steps FROM step_synchrony WHERE is_asynchronous AND compared_steps > 0) USING (run_id)
ORDER BY run_id
