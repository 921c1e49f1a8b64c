-- question: When does each run begin and end, by its packets, steps and events?
-- subject: timelines
-- row: a run with a packet, a step or an event
-- inputs: flows, steps, program_events
-- column: run_id
-- column: run_start_ns ns since the epoch, UTC; earliest packet, or start of a step or event
-- column: run_end_ns ns since the epoch, UTC; latest packet, or end of a step or event
-- A step may begin before the first packet: a timeline that begins here has no negative times.
WITH ends AS (
    SELECT run_id, first_seen_ns AS begin_ns, last_seen_ns AS end_ns
    FROM flows
    UNION ALL
    SELECT run_id, start_ns, end_ns
    FROM steps
    UNION ALL
    SELECT run_id, start_ns, end_ns
    FROM program_events
)
SELECT run_id, min(begin_ns) AS run_start_ns, max(end_ns) AS run_end_ns
FROM ends
GROUP BY run_id
ORDER BY run_id
