-- question: In which base windows does each host send or receive payload?
-- row: a run, a host and a stretch of 60 base windows in which it sent or received payload
-- inputs: flows, flow_windows
-- column: run_id; run
-- column: host_ip; address of the host
-- column: stretch_start_ns ns since the epoch, UTC; begin of the stretch, a multiple of 60 base windows
-- column: window_ns ns; length of a base window
-- column: sent; bit mask of the windows in which the host sent payload, the lowest bit is the first window
-- column: received; bit mask of the windows in which it received payload
-- A run of millions of windows is read once, and the time for which a host was active in any interval is counted in
-- bits.
WITH flow_activity AS (
    SELECT run_id, flow_id, window_start_ns // (60 * window_ns) AS stretch, any_value(window_ns) AS window_ns,
           bit_or(1::BIGINT << (window_start_ns // window_ns % 60)) AS windows
    FROM flow_windows
    WHERE payload_bytes > 0
    GROUP BY run_id, flow_id, stretch
), ends AS (
    SELECT run_id, src_ip AS host_ip, stretch, window_ns, windows AS sent, 0 AS received
    FROM flow_activity
    JOIN flows USING (run_id, flow_id)
    UNION ALL
    SELECT run_id, dst_ip, stretch, window_ns, 0, windows
    FROM flow_activity
    JOIN flows USING (run_id, flow_id)
)
SELECT run_id, host_ip, (stretch * 60 * any_value(window_ns))::BIGINT AS stretch_start_ns, any_value(window_ns) AS window_ns,
       bit_or(sent)::BIGINT AS sent, bit_or(received)::BIGINT AS received
FROM ends
GROUP BY run_id, host_ip, stretch
ORDER BY run_id, host_ip, stretch_start_ns
