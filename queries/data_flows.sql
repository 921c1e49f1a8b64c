-- question: Which flows of a run carry the data that its training exchanges?
-- subject: volume
-- row: a run and a data flow
-- inputs: flow_connections, step_flows, flow_classes, unknown_payload
-- figure: farhat section 3 (the large flows primarily send the model)
-- column: run_id
-- column: flow_id from flow_connections
-- column: src_ip
-- column: dst_ip
-- column: src_port
-- column: dst_port
-- column: wire_bytes bytes; wire bytes of the flow
-- column: payload_bytes bytes; payload of the flow
-- column: step_wire_bytes bytes; part of wire_bytes that was sent inside steps
-- A flow is a five-tuple (five_tuples). A data flow is large, as in flow_classes, at least half of its wire bytes are
-- payload, and at least half of them are sent in steps: a start-up broadcast is large in a short run, and
-- acknowledgements are large in a ring.
WITH thresholds AS (
    SELECT 0.5 AS payload_share,  -- of a data flow's wire bytes: acknowledgements have less
           0.5 AS step_share      -- of them, inside steps: a start-up broadcast has less
), in_steps AS (
    SELECT run_id, n.flow_id, sum(s.wire_bytes) AS step_bytes
    FROM step_flows AS s
    JOIN flow_connections AS n USING (run_id)
    WHERE n.connection_id = s.flow_id AND s.position = 'during'
    GROUP BY ALL
)
SELECT run_id, flow_id, src_ip, dst_ip, src_port, dst_port, wire_bytes, payload_bytes,
       step_bytes::BIGINT AS step_wire_bytes
FROM flow_classes()
JOIN in_steps USING (run_id, flow_id)
CROSS JOIN thresholds
WHERE run_id NOT IN (SELECT run_id FROM unknown_payload) AND size_class = 'large' AND payload_bytes >= payload_share * wire_bytes AND step_bytes >= step_share * wire_bytes
ORDER BY run_id, flow_id
