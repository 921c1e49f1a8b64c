-- question: How much does each pair of hosts send in each training step?
-- subject: volume
-- row: a run, a step and a directed pair of hosts that sent something in it
-- inputs: flows, step_flows
-- column: run_id
-- column: step; number of the training step, from 0
-- column: src_ip
-- column: dst_ip
-- column: wire_bytes bytes; original lengths of the pair's frames in the step
-- column: payload_bytes bytes; payload of these frames
-- The steps of a flow are those of the worker at whose host it was captured, as in step_flows.
SELECT run_id, step, src_ip, dst_ip, sum(s.wire_bytes)::BIGINT AS wire_bytes,
       CASE WHEN count(s.payload_bytes) = count(*) THEN sum(s.payload_bytes) END::BIGINT AS payload_bytes
FROM step_flows AS s
JOIN flows USING (run_id, flow_id)
WHERE position = 'during'
GROUP BY ALL
ORDER BY run_id, step, src_ip, dst_ip
