-- question: What do the windows of each flow add up to?
-- subject: volume
-- row: a flow with windows
-- inputs: flow_windows
-- column: run_id
-- column: flow_id; number of the flow in its run, as in flows
-- column: packets packets; sum over its windows
-- column: wire_bytes bytes; sum over its windows
-- column: payload_bytes bytes; sum over its windows
SELECT run_id, flow_id, sum(packets)::BIGINT AS packets, sum(wire_bytes)::BIGINT AS wire_bytes,
       sum(payload_bytes)::BIGINT AS payload_bytes
FROM flow_windows
GROUP BY run_id, flow_id
ORDER BY run_id, flow_id
