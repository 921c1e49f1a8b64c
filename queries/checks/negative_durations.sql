-- question: What ends before it begins?
-- row: a step, an event, a flow or a capture
-- inputs: steps, events, flows, captures
-- column: run_id
-- column: table_name; table of the row
-- column: key; the row: worker and step (and kind of event), flow or capture
-- column: begin_ns ns since the epoch, UTC; start
-- column: end_ns ns since the epoch, UTC; end
-- column: duration_ns ns; end_ns - begin_ns, negative
WITH spans AS (
    SELECT run_id, 'steps' AS table_name, worker || ', step ' || step AS key, start_ns AS begin_ns, end_ns
    FROM steps
    UNION ALL
    SELECT run_id, 'events', worker || ', step ' || step || ', ' || kind, start_ns, end_ns
    FROM events
    UNION ALL
    SELECT run_id, 'flows', 'flow ' || flow_id, first_seen_ns, last_seen_ns
    FROM flows
    UNION ALL
    SELECT run_id, 'captures', capture_id, first_ns, last_ns
    FROM captures
)
SELECT run_id, table_name, key, begin_ns, end_ns, end_ns - begin_ns AS duration_ns
FROM spans
WHERE end_ns < begin_ns
ORDER BY run_id, table_name, key, begin_ns, end_ns
