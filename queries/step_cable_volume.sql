-- question: How much is transmitted in each training step on the cable, as captured, and as payload?
-- subject: volume
-- row: a run and a step
-- inputs: step_flows, flows
-- figure: zerwas section VI
-- column: run_id
-- column: step; number of the training step, from 0
-- column: wire_bytes bytes; wire bytes of all flows in the step, as captured
-- column: payload_bytes bytes; payload of these flows
-- column: cable_bytes bytes; estimate of what crossed the cable: wire_bytes and the headers that segmentation offload adds after the capture; null where a flow's are not known
-- A flow's added headers (cable_bytes_estimate less wire_bytes) count to its steps by their payload.
WITH added AS (
    SELECT run_id, flow_id, (cable_bytes_estimate - wire_bytes) / greatest(payload_bytes, 1) AS per_payload_byte
    FROM flows
)
SELECT run_id, step, sum(wire_bytes)::BIGINT AS wire_bytes,
       CASE WHEN count(payload_bytes) = count(*) THEN sum(payload_bytes) END::BIGINT AS payload_bytes,
       CASE WHEN count(*) = count(per_payload_byte)
            THEN round(sum(wire_bytes + payload_bytes * per_payload_byte))::BIGINT END AS cable_bytes
FROM step_flows
LEFT JOIN added USING (run_id, flow_id)
WHERE position = 'during'
GROUP BY run_id, step
ORDER BY run_id, step
