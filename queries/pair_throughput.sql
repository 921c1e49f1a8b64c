-- question: How fast does each pair of hosts send over time, at a fine grain?
-- row: a run, a directed pair of hosts and a window in which it sent something
-- inputs: flows, flow_windows
-- param: window_ms DOUBLE = 10; length of a window, ms; at least the base window of the dataset
-- param: from_ms DOUBLE = 0; begin, ms since the run's first packet
-- param: length_ms DOUBLE = NULL; how much time from there on, ms; NULL: to the end
-- figure: zerwas fig. 7 (window_ms 10, length_ms 250)
WITH run_begin AS (
    SELECT run_id, min(first_seen_ns) AS begin_ns
    FROM flows
    GROUP BY run_id
), chosen AS (
    SELECT run_id, flow_id, begin_ns,
           (window_start_ns // ($window_ms * 1e6)::BIGINT) * ($window_ms * 1e6)::BIGINT AS start_ns,
           packets, wire_bytes, payload_bytes
    FROM flow_windows
    JOIN run_begin USING (run_id)
    WHERE window_start_ns + window_ns > begin_ns + ($from_ms * 1e6)::BIGINT
      AND ($length_ms IS NULL OR window_start_ns < begin_ns + (($from_ms + $length_ms) * 1e6)::BIGINT)
)
SELECT run_id, src_ip, dst_ip,
       start_ns AS window_start_ns,
       (start_ns - begin_ns) / 1e6 AS since_start_ms,
       sum(c.packets)::BIGINT AS packets, sum(c.wire_bytes)::BIGINT AS wire_bytes,
       sum(c.payload_bytes)::BIGINT AS payload_bytes,
       sum(c.wire_bytes) * 8 / ($window_ms * 1e6) AS gbit_per_s
FROM chosen AS c
JOIN flows USING (run_id, flow_id)
GROUP BY run_id, src_ip, dst_ip, start_ns, begin_ns
ORDER BY run_id, src_ip, dst_ip, window_start_ns
