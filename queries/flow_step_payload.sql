-- question: How much payload does each flow send inside training steps?
-- subject: volume
-- row: a flow with a packet inside a step
-- inputs: step_flows
-- column: run_id
-- column: flow_id; number of the flow in its run, as in flows
-- column: step_payload_bytes bytes; payload of the flow inside steps
SELECT run_id, flow_id, sum(payload_bytes)::BIGINT AS step_payload_bytes
FROM step_flows
WHERE position = 'during'
GROUP BY run_id, flow_id
ORDER BY run_id, flow_id
