-- question: In which runs do flows, windows or steps hold other packets than the ledger?
-- row: a run and a table whose sums differ from the ledger's in_flows
-- inputs: runs, capture_ledger, flows, flow_window_sums, step_flows
-- column: run_id from capture_ledger
-- column: table_name; table whose sums differ
-- column: ledger_packets packets; packets in the ledger under in_flows
-- column: table_packets packets; packets in the table
-- column: ledger_wire_bytes bytes; wire bytes in the ledger under in_flows
-- column: table_wire_bytes bytes; wire bytes in the table
WITH expected AS (
    SELECT run_id, sum(packets)::BIGINT AS packets, sum(wire_bytes)::BIGINT AS wire_bytes
    FROM capture_ledger
    WHERE reason = 'in_flows'
    GROUP BY run_id
), found AS (
    SELECT run_id, 'flows' AS table_name, sum(packets)::BIGINT AS packets, sum(wire_bytes)::BIGINT AS wire_bytes
    FROM flows
    GROUP BY run_id
    UNION ALL
    SELECT run_id, 'flow_windows', sum(packets)::BIGINT, sum(wire_bytes)::BIGINT
    FROM flow_window_sums
    GROUP BY run_id
    UNION ALL  -- empty where a run has no log
    SELECT run_id, 'step_flows', sum(packets)::BIGINT, sum(wire_bytes)::BIGINT
    FROM step_flows
    GROUP BY run_id
), wanted AS (
    SELECT run_id, unnest(['flows', 'flow_windows']) AS table_name
    FROM runs
    UNION
    SELECT DISTINCT run_id, 'step_flows'
    FROM step_flows
)
SELECT run_id, table_name, coalesce(e.packets, 0) AS ledger_packets, coalesce(f.packets, 0) AS table_packets,
       coalesce(e.wire_bytes, 0) AS ledger_wire_bytes, coalesce(f.wire_bytes, 0) AS table_wire_bytes
FROM wanted
LEFT JOIN expected AS e USING (run_id)
LEFT JOIN found AS f USING (run_id, table_name)
WHERE coalesce(e.packets, 0) <> coalesce(f.packets, 0) OR coalesce(e.wire_bytes, 0) <> coalesce(f.wire_bytes, 0)
ORDER BY run_id, table_name
