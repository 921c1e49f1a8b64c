-- question: In which base windows does each host send or receive data?
-- subject: throughput
-- row: a run, a host and a stretch of 60 base windows in which it sent or received payload
-- inputs: flows, flow_windows, unknown_payload
-- param: least_gbit_per_s DOUBLE = NULL; a flow's window with less payload is no communication, Gbit/s; NULL: a hundredth of the fastest one of the host's flows
-- column: run_id
-- column: host_ip; address of the host
-- column: stretch_start_ns ns since the epoch, UTC; start of the stretch, a multiple of 60 base windows
-- column: window_ns
-- column: sent; bit mask of the windows in which a flow of the host sent as much payload, the lowest bit is the first window
-- column: received; bit mask of the windows in which it received as much
-- column: threshold_gbit_per_s Gbit/s; the rate from which on a window of a flow counts
-- The masks are for other queries to count in; what a person reads is flow_timeline, or pair_burst.
-- A run of millions of windows is read once, and the time for which a host was active in any interval is counted in
-- bits. Control messages are small and come all the time: without a least rate they make every window a busy one.
WITH thresholds AS (
    SELECT 0.01 AS least_of_fastest,  -- of the payload of the fastest window of the host's flows
           $least_gbit_per_s AS given_gbit_per_s
), fastest AS (
    SELECT run_id, flow_id, any_value(window_ns) AS window_ns, max(payload_bytes) AS fastest
    FROM flow_windows
    WHERE payload_bytes > 0 AND run_id NOT IN (SELECT run_id FROM unknown_payload)
    GROUP BY run_id, flow_id
), ends AS MATERIALIZED (
    SELECT run_id, flow_id, src_ip AS host_ip, window_ns, fastest, true AS is_sender
    FROM fastest
    JOIN flows USING (run_id, flow_id)
    UNION ALL
    SELECT run_id, flow_id, dst_ip, window_ns, fastest, false FROM fastest JOIN flows USING (run_id, flow_id)
), limits AS MATERIALIZED (
    SELECT run_id, host_ip,
           coalesce(any_value(given_gbit_per_s), 8 * any_value(least_of_fastest) * max(fastest) / any_value(window_ns))
               AS threshold_gbit_per_s
    FROM ends
    CROSS JOIN thresholds
    GROUP BY run_id, host_ip
), flow_limits AS (  -- of both ends of a flow, so that its windows are read once
    SELECT run_id, flow_id,
           any_value(threshold_gbit_per_s) FILTER (is_sender) * any_value(window_ns) / 8 AS least_sent,
           any_value(threshold_gbit_per_s) FILTER (NOT is_sender) * any_value(window_ns) / 8 AS least_received
    FROM ends
    JOIN limits USING (run_id, host_ip)
    GROUP BY run_id, flow_id
), limit_lists AS (  -- a row a run, so that DuckDB builds its join on this side and not on the windows
    SELECT run_id, list({'flow_id': flow_id, 'least_sent': least_sent, 'least_received': least_received}) AS flow_limits
    FROM flow_limits
    GROUP BY run_id
), listed AS MATERIALIZED (
    SELECT run_id, unnest(flow_limits, recursive := true)
    FROM limit_lists
), flow_activity AS (
    SELECT run_id, flow_id, window_start_ns // (60 * window_ns) AS stretch, any_value(window_ns) AS window_ns,
           bit_or(1::BIGINT << (window_start_ns // window_ns % 60)) FILTER (payload_bytes >= least_sent) AS sent,
           bit_or(1::BIGINT << (window_start_ns // window_ns % 60)) FILTER (payload_bytes >= least_received) AS received
    FROM flow_windows
    JOIN listed USING (run_id, flow_id)
    WHERE payload_bytes > 0
    GROUP BY run_id, flow_id, stretch
)
SELECT run_id, host_ip, (stretch * 60 * any_value(a.window_ns))::BIGINT AS stretch_start_ns, any_value(a.window_ns) AS window_ns,
       coalesce(bit_or(CASE WHEN is_sender THEN sent END), 0)::BIGINT AS sent,
       coalesce(bit_or(CASE WHEN NOT is_sender THEN received END), 0)::BIGINT AS received,
       any_value(threshold_gbit_per_s) AS threshold_gbit_per_s
FROM flow_activity AS a
JOIN ends USING (run_id, flow_id)
JOIN limits USING (run_id, host_ip)
GROUP BY run_id, host_ip, stretch
ORDER BY run_id, host_ip, stretch_start_ns
