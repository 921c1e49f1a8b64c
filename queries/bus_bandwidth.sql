-- question: How fast is the exchange of each step: for the algorithm, for the bus, and on the busiest host's link?
-- row: a run and a step
-- inputs: flows, step_flows, topology_edges, conservation, step_overlap
-- All from the wire, at the hosts that were captured (vantage senders: each packet counts where it was sent).
-- exchanged_bytes is S, the payload of the pairs that carry the exchange over the factor of the run's law
-- (exchange_laws), so it does not depend on a declared model size; it is the law that conservation has. exchange_ms is
-- the time in which the worker that was busiest in the step sent or received payload, in whole base windows: pauses
-- for computation are not in it, those of the exchange itself shorter than a window are. algorithm_gbit_per_s is S
-- over that time; bus_gbit_per_s is that times 2(N-1)/N, as nccl-tests has it for an all-reduce, so that numbers of
-- workers compare (for pair averaging, which is none, times 1); it is payload, and no rate of any wire but a ring's.
-- link_gbit_per_s is what the busiest host sent or received in all, with headers, over the time: the wire's rate.
WITH laws AS MATERIALIZED (
    SELECT run_id, topology, level, hosts, law, total_factor
    FROM conservation()
    WHERE law IS NOT NULL
), times AS (
    SELECT run_id, step, max(wire_ms) AS exchange_ms, any_value(window_ms) AS window_ms
    FROM step_overlap
    GROUP BY run_id, step
), step_pairs AS MATERIALIZED (
    SELECT run_id, step, src_ip, dst_ip, sum(s.payload_bytes) AS payload, sum(s.wire_bytes) AS wire
    FROM step_flows AS s
    JOIN flows USING (run_id, flow_id)
    WHERE position = 'during'
    GROUP BY ALL
), ends AS (
    SELECT run_id, step, src_ip AS host_ip, 'sent' AS direction, sum(wire) AS wire FROM step_pairs GROUP BY ALL
    UNION ALL
    SELECT run_id, step, dst_ip, 'received', sum(wire) FROM step_pairs GROUP BY ALL
), links AS (
    SELECT run_id, step, max(wire) AS link_bytes
    FROM ends
    GROUP BY run_id, step
), volumes AS (
    SELECT run_id, step, sum(payload) / any_value(total_factor) AS exchanged
    FROM step_pairs
    JOIN topology_edges USING (run_id, src_ip, dst_ip)
    JOIN laws USING (run_id, level)
    GROUP BY run_id, step
)
SELECT run_id, step, topology AS algorithm, law, 'senders' AS vantage, hosts,
       round(exchanged)::BIGINT AS exchanged_bytes, exchange_ms, window_ms,
       8e-6 * exchanged / nullif(exchange_ms, 0) AS algorithm_gbit_per_s,
       algorithm_gbit_per_s * CASE WHEN topology = 'pair_averaging' THEN 1 ELSE 2 * (hosts - 1) / hosts END AS bus_gbit_per_s,
       8e-6 * link_bytes / nullif(exchange_ms, 0) AS link_gbit_per_s
FROM volumes
JOIN laws USING (run_id)
JOIN links USING (run_id, step)
LEFT JOIN times USING (run_id, step)
ORDER BY run_id, step
