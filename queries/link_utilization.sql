-- question: How much of a step does a worker's link transmit, and how much longer than that does the step last?
-- subject: throughput
-- row: a run with a declared link rate and with steps
-- inputs: runs, run_step_time, step_flows, flows, hosts
-- figure: gao equations 5.1 and 5.2, table 5.3
-- answer: utilization
-- column: run_id from run_step_time
-- column: source
-- column: topology
-- column: model; name of the model
-- column: workers
-- column: bandwidth_mbit
-- column: delay_ms
-- column: variant; of a simulated run its queue and barrier
-- column: step_ms
-- column: link_bytes bytes; wire bytes that the busiest host sends or receives in a step, the mean over steps
-- column: network_ms ms; time that link_bytes take at bandwidth_mbit
-- column: compute_to_network; step_ms over network_ms: equation 5.1, which takes the step's time for the computation's
-- column: utilization share; network_ms over step_ms (equation 5.2)
WITH sums AS (
    SELECT run_id, step, src_ip, dst_ip, sum(sf.wire_bytes) AS bytes
    FROM step_flows AS sf
    JOIN flows USING (run_id, flow_id)
    WHERE position = 'during'
    GROUP BY ALL
), loads AS (
    SELECT run_id, step, src_ip AS host_ip, 'out' AS way, sum(bytes) AS bytes FROM sums GROUP BY ALL
    UNION ALL
    SELECT run_id, step, dst_ip, 'in', sum(bytes) FROM sums GROUP BY ALL
), totals AS (
    SELECT run_id, host_ip, way, sum(bytes) AS bytes
    FROM loads
    JOIN hosts USING (run_id, host_ip)
    WHERE role IN ('worker', 'parameter_server')
    GROUP BY ALL
), counted AS (
    SELECT run_id, count(DISTINCT step) AS steps
    FROM sums
    GROUP BY run_id
), busiest AS (
    SELECT run_id, max(bytes / steps) AS bytes
    FROM totals
    JOIN counted USING (run_id)
    GROUP BY run_id
)
SELECT run_id, r.source, r.topology, r.model, r.workers, r.bandwidth_mbit, r.delay_ms, r.variant, step_ms,
       bytes AS link_bytes, bytes * 8 / (r.bandwidth_mbit * 1e3) AS network_ms,
       step_ms / nullif(bytes * 8 / (r.bandwidth_mbit * 1e3), 0) AS compute_to_network,
       bytes * 8 / (r.bandwidth_mbit * 1e3) / nullif(step_ms, 0) AS utilization
FROM busiest
JOIN runs AS r USING (run_id)
JOIN run_step_time() AS t USING (run_id)
WHERE r.bandwidth_mbit > 0 AND step_ms IS NOT NULL
ORDER BY run_id
