-- question: Which rows refer to a run, host, capture or step that does not exist?
-- row: a table, a column (or columns) and a value without a match, with the number of rows that hold it
-- inputs: runs, hosts, captures, capture_ledger, flows, encapsulations, flow_opcodes, flow_windows, steps, step_flows, events, program_events, packets
-- column: run_id from hosts
-- column: table_name; table of the rows
-- column: column_name; column, or columns separated by a comma
-- column: value; value that has no match
-- column: named_by_rows rows; rows that hold the value
-- flow_parts covers flows that flow_windows, step_flows, flow_opcodes and packets refer to, ledger captures that
-- capture_ledger refers to, flow_references tunnels and reverse flows. A multicast address is no host.
WITH run_names AS (
    SELECT 'hosts' AS table_name, run_id, count(*) AS named FROM hosts GROUP BY run_id
    UNION ALL
    SELECT 'captures', run_id, count(*) FROM captures GROUP BY run_id
    UNION ALL
    SELECT 'capture_ledger', run_id, count(*) FROM capture_ledger GROUP BY run_id
    UNION ALL
    SELECT 'flows', run_id, count(*) FROM flows GROUP BY run_id
    UNION ALL
    SELECT 'encapsulations', run_id, count(*) FROM encapsulations GROUP BY run_id
    UNION ALL
    SELECT 'flow_opcodes', run_id, count(*) FROM flow_opcodes GROUP BY run_id
    UNION ALL
    SELECT 'flow_windows', run_id, count(*) FROM flow_windows GROUP BY run_id
    UNION ALL
    SELECT 'steps', run_id, count(*) FROM steps GROUP BY run_id
    UNION ALL
    SELECT 'step_flows', run_id, count(*) FROM step_flows GROUP BY run_id
    UNION ALL
    SELECT 'events', run_id, count(*) FROM events GROUP BY run_id
    UNION ALL
    SELECT 'packets', run_id, count(*) FROM packets GROUP BY run_id
), host_names_given AS (
    SELECT 'flows' AS table_name, 'src_ip' AS column_name, run_id, src_ip AS host_ip, count(*) AS named
    FROM flows
    GROUP BY ALL
    UNION ALL
    SELECT 'flows', 'dst_ip', run_id, dst_ip, count(*)
    FROM flows
    GROUP BY ALL
    UNION ALL
    SELECT 'captures', 'vantage_ip', run_id, vantage_ip, count(*)
    FROM captures
    WHERE records > 0  -- a capture without packets that count may be of a host that sends and receives nothing
      AND (run_id, capture_id) IN (SELECT (run_id, capture_id) FROM capture_ledger WHERE reason = 'in_flows' AND packets > 0)
    GROUP BY ALL
), step_names AS (
    SELECT 'step_flows' AS table_name, run_id, worker, step, count(*) AS named
    FROM step_flows
    GROUP BY ALL
    UNION ALL
    -- what is between two steps has the number of the later one, which may not come
    SELECT 'events', run_id, worker,
           CASE WHEN kind IN ('checkpoint', 'restore', 'restart', 'process_killed', 'host_killed') THEN nullif(step, 0) - 1 ELSE step END,
           count(*)
    FROM program_events
    GROUP BY ALL
), step_keys AS (
    SELECT run_id, worker, step FROM steps
    UNION
    SELECT run_id, worker, NULL FROM steps  -- before and after
), orphans AS (
    SELECT run_id, table_name, 'run_id' AS column_name, run_id AS value, named
    FROM run_names
    ANTI JOIN runs USING (run_id)
    UNION ALL
    SELECT run_id, table_name, column_name, host_ip, named
    FROM host_names_given
    ANTI JOIN hosts USING (run_id, host_ip)
    WHERE NOT regexp_full_match(host_ip, '(22[4-9]|23[0-9])\..*|255\.255\.255\.255|0\.0\.0\.0|ff.*:.*|::|(multicast|broadcast|unspecified)-.*')
    UNION ALL
    SELECT run_id, 'packets', 'capture_id', capture_id, count(*)
    FROM packets
    ANTI JOIN captures USING (run_id, capture_id)
    GROUP BY run_id, capture_id
    UNION ALL
    SELECT n.run_id, table_name, 'worker, step', n.worker || coalesce(', ' || n.step, ''), named
    FROM step_names AS n
    ANTI JOIN step_keys AS k ON k.run_id = n.run_id AND k.worker = n.worker AND k.step IS NOT DISTINCT FROM n.step
)
SELECT run_id, table_name, column_name, value, named AS named_by_rows
FROM orphans
ORDER BY run_id, table_name, column_name, value
