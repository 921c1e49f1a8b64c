-- question: How fast does each flow of a run send, as a counter that changes with time?
-- subject: timelines
-- row: a run, a flow and a window in which it sends, and the window after it in which it no longer does
-- inputs: flow_connections, five_tuples, flow_names, flow_windows, timeline_start, timeline_lanes
-- param: window_ms DOUBLE > 0 = NULL; length of a window, ms, at least the base window; NULL: 1, 2 or 5 times a power of ten, by windows
-- param: windows BIGINT > 0 = 1000; most windows of the excerpt where window_ms is NULL
-- param: from_ms DOUBLE = 0; start of the excerpt, ms since the run's start
-- param: length_ms DOUBLE > 0 = NULL; how much time from there on, ms; NULL: to the end
-- param: flows BIGINT = 20; this many flows of a run, the largest; all others together are one
-- column: run_id
-- column: lane; lane of the sender (timeline_lanes); after the last one for the other flows
-- column: flow_place; number of the flow by wire bytes in the whole run, from 1; the other flows are the last
-- column: flow; sender and receiver with their ports (flow_names), or other flows
-- column: since_start_ns ns; start of the window since the run's start (timeline_start), not below 0
-- column: window_ms ms; length of a window
-- column: wire_bytes bytes; wire bytes of the flow in the window; 0 in the window after the last of a stretch
-- column: gbit_per_s Gbit/s; these bytes over the window's length
-- A flow is a five-tuple (five_tuples). Windows are counted from the base window of the run's start.
WITH bases AS (
    SELECT run_id, max(window_ns) AS base_ns
    FROM flow_windows
    GROUP BY run_id
), grid AS (
    SELECT run_id, run_start_ns, base_ns, run_start_ns // base_ns * base_ns AS begin_ns,
           greatest(coalesce($length_ms * 1e6, run_end_ns - run_start_ns - $from_ms * 1e6) / $windows, base_ns) AS least_ns,
           10 ** floor(log10(least_ns)) AS power_ns,
           coalesce($window_ms * 1e6, power_ns * CASE WHEN least_ns <= power_ns THEN 1
                                                      WHEN least_ns <= 2 * power_ns THEN 2
                                                      WHEN least_ns <= 5 * power_ns THEN 5
                                                      ELSE 10 END) AS wanted_ns,
           greatest(ceil(wanted_ns / base_ns)::BIGINT, 1) * base_ns AS length_ns
    FROM bases
    JOIN timeline_start USING (run_id)
), sizes AS (
    SELECT run_id, flow_id, src_ip, row_number() OVER (PARTITION BY run_id ORDER BY wire_bytes DESC, flow_id) AS size_place
    FROM five_tuples
), places AS (
    SELECT run_id, connection_id, least(size_place, $flows + 1) AS flow_place
    FROM flow_connections
    JOIN sizes USING (run_id, flow_id)
), connection_windows AS (
    SELECT run_id, flow_id AS connection_id, (window_start_ns - begin_ns) // length_ns AS number,
           sum(wire_bytes)::BIGINT AS bytes
    FROM flow_windows
    JOIN grid USING (run_id)
    WHERE window_start_ns + window_ns > run_start_ns + ($from_ms * 1e6)::BIGINT
      AND ($length_ms IS NULL OR window_start_ns < run_start_ns + (($from_ms + $length_ms) * 1e6)::BIGINT)
    GROUP BY ALL
), windowed AS (
    SELECT run_id, flow_place, number, sum(bytes)::BIGINT AS bytes
    FROM connection_windows
    JOIN places USING (run_id, connection_id)
    GROUP BY ALL
), changes AS (
    FROM windowed
    UNION ALL
    SELECT run_id, flow_place, number + 1, 0
    FROM windowed
    QUALIFY lead(number) OVER (PARTITION BY run_id, flow_place ORDER BY number) IS DISTINCT FROM number + 1
), named AS (
    SELECT f.run_id, size_place AS flow_place, lane, flow
    FROM sizes AS f
    JOIN flow_names USING (run_id, flow_id)
    LEFT JOIN timeline_lanes AS l ON l.run_id = f.run_id AND l.host_ip = src_ip
    WHERE size_place <= $flows
    UNION ALL
    SELECT run_id, $flows + 1, NULL, 'other flows'
    FROM timeline_start
), last_lane AS (
    SELECT run_id, max(lane) AS lane
    FROM timeline_lanes
    GROUP BY run_id
)
SELECT c.run_id, coalesce(n.lane, last_lane.lane + 1, 1) AS lane, c.flow_place, flow,
       greatest(begin_ns + number * length_ns - run_start_ns, 0) AS since_start_ns,
       length_ns / 1e6 AS window_ms,
       bytes AS wire_bytes,
       bytes * 8 / length_ns AS gbit_per_s
FROM changes AS c
JOIN grid USING (run_id)
JOIN named AS n ON n.run_id = c.run_id AND n.flow_place = c.flow_place
LEFT JOIN last_lane ON last_lane.run_id = c.run_id
ORDER BY c.run_id, since_start_ns, c.flow_place
