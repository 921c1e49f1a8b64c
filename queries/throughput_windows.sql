-- question: When does each flow send, and how fast?
-- row: a run, a flow and a window in which it sent something
-- inputs: flows, flow_windows
-- param: window_ms DOUBLE = 10000; length of a window, ms; at least the base window of the dataset
-- figure: zerwas fig. 6
-- Windows are counted from the base window of the run's first packet.
WITH span AS (
    SELECT run_id, min(window_start_ns) AS begin_ns, greatest(($window_ms * 1e6)::BIGINT, max(window_ns)) AS length_ns
    FROM flow_windows
    GROUP BY run_id
), windowed AS (
    SELECT run_id, flow_id, begin_ns, length_ns, (window_start_ns - begin_ns) // length_ns AS number,
           sum(packets)::BIGINT AS packets, sum(wire_bytes)::BIGINT AS wire_bytes,
           sum(payload_bytes)::BIGINT AS payload_bytes
    FROM flow_windows
    JOIN span USING (run_id)
    GROUP BY ALL
)
SELECT run_id, flow_id, src_ip, dst_ip, src_port, dst_port,
       begin_ns + number * length_ns AS window_start_ns,
       number * length_ns / 1e9 AS since_start_s,
       w.packets, w.wire_bytes, w.payload_bytes,
       w.wire_bytes * 8 / length_ns AS gbit_per_s,
       w.wire_bytes / max(w.wire_bytes) OVER (PARTITION BY run_id) AS share_of_peak
FROM windowed AS w
JOIN flows AS f USING (run_id, flow_id)
ORDER BY run_id, flow_id, window_start_ns
