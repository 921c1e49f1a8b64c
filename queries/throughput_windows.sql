-- question: When does each flow send, and how fast?
-- subject: throughput
-- row: a run, a flow and a window in which it sent something
-- inputs: flow_connections, flow_windows
-- answer: flow_id, since_start_s, gbit_per_s
-- param: window_ms DOUBLE > 0 = 10000; length of a window, ms; rounded to whole base windows of the run
-- figure: zerwas fig. 6
-- column: run_id
-- column: flow_id from flow_connections
-- column: src_ip
-- column: dst_ip
-- column: src_port
-- column: dst_port
-- column: window_start_ns
-- column: since_start_s s; start of the window since the run's first base window
-- column: packets packets; packets of the flow in the window
-- column: wire_bytes from flow_connections
-- column: payload_bytes from flow_connections
-- column: gbit_per_s Gbit/s; wire_bytes over the window's length
-- column: share_of_peak share; wire_bytes over those of the run's busiest flow and window
-- Windows are counted from the base window of the run's first packet. A flow is a five-tuple (five_tuples).
WITH span AS (
    SELECT run_id, min(window_start_ns) AS begin_ns, (greatest(round($window_ms * 1e6 / max(window_ns)), 1) * max(window_ns))::BIGINT AS length_ns
    FROM flow_windows
    GROUP BY run_id
), connections AS (
    SELECT run_id, connection_id, flow_id, src_ip, dst_ip, src_port, dst_port
    FROM flow_connections
), connection_windows AS (
    SELECT run_id, flow_id AS connection_id, begin_ns, length_ns, (window_start_ns - begin_ns) // length_ns AS number,
           sum(packets)::BIGINT AS packets, sum(wire_bytes)::BIGINT AS wire_bytes,
           sum(payload_bytes)::BIGINT AS payload_bytes
    FROM flow_windows
    JOIN span USING (run_id)
    GROUP BY ALL
), windowed AS (
    SELECT run_id, flow_id, any_value(src_ip) AS src_ip, any_value(dst_ip) AS dst_ip, any_value(src_port) AS src_port,
           any_value(dst_port) AS dst_port, begin_ns, length_ns, number, sum(packets)::BIGINT AS packets,
           sum(wire_bytes)::BIGINT AS wire_bytes, sum(payload_bytes)::BIGINT AS payload_bytes
    FROM connection_windows
    JOIN connections USING (run_id, connection_id)
    GROUP BY run_id, flow_id, begin_ns, length_ns, number
)
SELECT run_id, flow_id, src_ip, dst_ip, src_port, dst_port,
       begin_ns + number * length_ns AS window_start_ns,
       number * length_ns / 1e9 AS since_start_s,
       packets, wire_bytes, payload_bytes,
       wire_bytes * 8 / length_ns AS gbit_per_s,
       wire_bytes / max(wire_bytes) OVER (PARTITION BY run_id) AS share_of_peak
FROM windowed
ORDER BY run_id, flow_id, window_start_ns
