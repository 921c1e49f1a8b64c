-- question: How are the durations of small flows distributed at the lowest rate of flows?
-- row: a ratio of computation to transmission, a seed, a priority and a small flow that was measured and completed
-- inputs: cells, background_flows
-- figure: gao figs. 5.6, 5.9, 5.11
-- param: rate DOUBLE = NULL; rate of flows, flows a second; NULL: the lowest of the sweep
-- column: compute_to_network; computation over transmission time of an iteration (equation 5.1)
-- column: flows_per_s flows/s; background flows that begin at each host
-- column: seed; of the arrivals
-- column: training_priority; same as the background's, or lower
-- column: duration_ms ms; duration of the flow
-- column: share share; of the small flows that last at most as long
SELECT compute_to_network, flows_per_s, seed, training_priority, (end_ns - start_ns) / 1e6 AS duration_ms,
    cume_dist() OVER (
        PARTITION BY compute_to_network, flows_per_s, seed, training_priority ORDER BY end_ns - start_ns
    ) AS share
FROM background_flows
JOIN cells USING (cell)
WHERE is_measured AND end_ns IS NOT NULL AND bytes < 100_000
    AND flows_per_s = coalesce($rate, (SELECT min(flows_per_s) FROM cells WHERE flows_per_s > 0))
ORDER BY compute_to_network, seed, training_priority, duration_ms
