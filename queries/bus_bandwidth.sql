-- question: How fast is the exchange of each step: for the algorithm, for the bus, and on the busiest host's link?
-- row: a run and a step
-- inputs: step_pairs, topology_edges, conservation, step_overlap
-- column: run_id; run
-- column: step; number of the training step, from 0
-- column: algorithm; inferred topology
-- column: law; law of the exchange, as in exchange_laws
-- column: vantage; senders: each packet counts where it was sent
-- column: hosts hosts; N, hosts that take part in the exchange
-- column: exchanged_bytes bytes; S: payload in the step of the pairs that carry the exchange, over the law's factor
-- column: exchange_ms ms; time in which the busiest worker sent or received payload in the step, in whole base windows; null without traffic of any worker
-- column: window_ms ms; length of a base window
-- column: algorithm_gbit_per_s Gbit/s; S over exchange_ms
-- column: bus_gbit_per_s Gbit/s; algorithm_gbit_per_s times 2(N-1)/N, for pair averaging times 1
-- column: link_gbit_per_s Gbit/s; wire bytes that the busiest host sent, or received, in the step, over exchange_ms
-- Measured on the wire, at the hosts that were captured. S does not depend on a declared model size; the law is the one
-- that conservation chose. Pauses for computation are not in exchange_ms; pauses of the exchange itself shorter than a
-- window are. The factor 2(N-1)/N is that of nccl-tests for an all-reduce, so that different numbers of workers
-- compare. bus_gbit_per_s is payload; only in a ring is it the rate of a wire. link_gbit_per_s is the rate of a wire,
-- with headers.
WITH laws AS MATERIALIZED (
    SELECT run_id, topology, level, hosts, law, total_factor
    FROM conservation()
    WHERE law IS NOT NULL
), times AS (
    SELECT run_id, step, max(wire_ms) AS exchange_ms, any_value(window_ms) AS window_ms
    FROM step_overlap
    GROUP BY run_id, step
), volumes_of_pairs AS MATERIALIZED (
    SELECT run_id, step, src_ip, dst_ip, payload_bytes AS payload, wire_bytes AS wire
    FROM step_pairs
), ends AS (
    SELECT run_id, step, src_ip AS host_ip, 'sent' AS direction, sum(wire) AS wire FROM volumes_of_pairs GROUP BY ALL
    UNION ALL
    SELECT run_id, step, dst_ip, 'received', sum(wire) FROM volumes_of_pairs GROUP BY ALL
), links AS (
    SELECT run_id, step, max(wire) AS link_bytes
    FROM ends
    GROUP BY run_id, step
), volumes AS (
    SELECT run_id, step, sum(payload) / any_value(total_factor) AS exchanged
    FROM volumes_of_pairs
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
