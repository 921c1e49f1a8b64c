-- question: When does each flow send, and how fast?
-- row: a run, a flow and a window in which it sent something
-- inputs: flows, flow_windows
-- param: window_ms DOUBLE = 10000; length of a window, ms; at least the base window of the dataset
-- figure: zerwas fig. 6
WITH run_begin AS (
    SELECT run_id, min(first_seen_ns) AS begin_ns
    FROM flows
    GROUP BY run_id
), windowed AS (
    SELECT run_id, flow_id, (window_start_ns // ($window_ms * 1e6)::BIGINT) * ($window_ms * 1e6)::BIGINT AS start_ns,
           sum(packets)::BIGINT AS packets, sum(wire_bytes)::BIGINT AS wire_bytes,
           sum(payload_bytes)::BIGINT AS payload_bytes
    FROM flow_windows
    GROUP BY ALL
)
SELECT run_id, flow_id, src_ip, dst_ip, src_port, dst_port,
       start_ns AS window_start_ns,
       (start_ns - begin_ns) / 1e9 AS since_start_s,
       w.packets, w.wire_bytes, w.payload_bytes,
       w.wire_bytes * 8 / ($window_ms * 1e6) AS gbit_per_s,
       w.wire_bytes / max(w.wire_bytes) OVER (PARTITION BY run_id) AS share_of_peak
FROM windowed AS w
JOIN flows AS f USING (run_id, flow_id)
JOIN run_begin USING (run_id)
ORDER BY run_id, flow_id, window_start_ns
