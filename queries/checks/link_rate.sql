-- question: Which workers sent more than the declared rate of their link lets through?
-- row: a run and a worker
-- inputs: runs, hosts, flows, flow_windows, run_spans
-- column: run_id from flows
-- column: host_ip; address of the worker
-- column: windows windows; number of windows in which it sent more
-- column: window_ms ms; length of a window
-- column: link_share share; rate in the busiest window over bandwidth_mbit
-- column: most_share share; most of that which the link lets through in a window
-- column: explanation; what may be wrong
-- A shaper passes no more than bandwidth_mbit and its burst in any time. Packets are captured as they leave it, and their
-- times lag by less than a millisecond. Where burst_bytes is not declared, 5 % more are let through: a capture
-- stands before the queue of the network card. Servers may have faster links. In synthetic runs transfers share no links.
WITH lengths AS (
    SELECT run_id, first_ns, bandwidth_mbit, burst_bytes,
           greatest(100_000_000 // base_ns, 1) * base_ns AS length_ns,
           bandwidth_mbit * length_ns / 8e3 AS link_bytes,
           link_bytes + coalesce(burst_bytes, 0.05 * link_bytes) AS most_bytes
    FROM run_spans
    JOIN runs USING (run_id)
    WHERE bandwidth_mbit > 0 AND source IS DISTINCT FROM 'synthetic'
), sent AS (
    SELECT run_id, src_ip AS host_ip, (window_start_ns - first_ns) // length_ns AS number, sum(w.wire_bytes) AS bytes
    FROM flow_windows AS w
    JOIN flows USING (run_id, flow_id)
    JOIN lengths USING (run_id)
    GROUP BY ALL
)
SELECT run_id, host_ip, count(*) AS windows, any_value(length_ns) / 1e6 AS window_ms,
       max(bytes / link_bytes) AS link_share, any_value(most_bytes / link_bytes) AS most_share,
       CASE WHEN any_value(burst_bytes) IS NULL
            THEN 'bandwidth_mbit is not the rate of this link, or packets were captured before a long queue: declare burst_bytes'
            ELSE 'bandwidth_mbit or burst_bytes is not that of this link, or packets were captured before its shaper'
       END AS explanation
FROM sent
JOIN lengths USING (run_id)
JOIN hosts USING (run_id, host_ip)
WHERE role = 'worker' AND bytes > most_bytes
GROUP BY run_id, host_ip
ORDER BY run_id, host_ip
