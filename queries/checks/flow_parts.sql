-- question: Which flows are not the sum of their windows, steps, opcodes or packets?
-- row: a flow and a table whose rows do not add up to it
-- inputs: flows, steps, flow_window_sums, step_flows, flow_opcodes, packets
-- column: run_id
-- column: flow_id from flows
-- column: table_name; table whose rows do not add up to the flow
-- column: flow_packets packets; packets of the flow in flows; null where flows has no such flow
-- column: table_packets packets; sum of the table's rows; null where it has none
-- column: flow_wire_bytes bytes; wire bytes of the flow in flows
-- column: table_wire_bytes bytes; sum of the table's rows
-- column: flow_payload_bytes bytes; payload of the flow in flows
-- column: table_payload_bytes bytes; sum of the table's rows
WITH parts AS (
    SELECT run_id, flow_id, 'flow_windows' AS table_name, packets, wire_bytes, payload_bytes
    FROM flow_window_sums
    UNION ALL
    SELECT run_id, flow_id, 'step_flows', sum(packets)::BIGINT, sum(wire_bytes)::BIGINT, sum(payload_bytes)::BIGINT
    FROM step_flows
    GROUP BY ALL
    UNION ALL
    SELECT run_id, flow_id, 'flow_opcodes', sum(packets)::BIGINT, sum(wire_bytes)::BIGINT, sum(payload_bytes)::BIGINT
    FROM flow_opcodes
    GROUP BY ALL
    UNION ALL
    SELECT run_id, flow_id, 'packets', count(*), sum(wire_bytes)::BIGINT, sum(payload_bytes)::BIGINT
    FROM packets
    GROUP BY ALL
), wanted AS (
    SELECT run_id, flow_id, 'flow_windows' AS table_name, packets, wire_bytes, payload_bytes
    FROM flows
    UNION ALL  -- only of runs with a log
    SELECT run_id, flow_id, 'step_flows', packets, wire_bytes, payload_bytes
    FROM flows
    WHERE run_id IN (SELECT run_id FROM steps)
    UNION ALL
    SELECT run_id, flow_id, 'flow_opcodes', packets, wire_bytes, payload_bytes
    FROM flows
    WHERE roce_dest_qp IS NOT NULL
    UNION ALL  -- only of runs that were read with --packets
    SELECT run_id, flow_id, 'packets', packets, wire_bytes, payload_bytes
    FROM flows
    WHERE run_id IN (SELECT run_id FROM packets)
)
SELECT run_id, flow_id, table_name, wanted.packets AS flow_packets, parts.packets AS table_packets,
       wanted.wire_bytes AS flow_wire_bytes, parts.wire_bytes AS table_wire_bytes,
       wanted.payload_bytes AS flow_payload_bytes, parts.payload_bytes AS table_payload_bytes
FROM wanted
FULL JOIN parts USING (run_id, flow_id, table_name)
WHERE (wanted.packets, wanted.wire_bytes, wanted.payload_bytes)
      IS DISTINCT FROM (parts.packets, parts.wire_bytes, parts.payload_bytes)
ORDER BY run_id, flow_id, table_name
