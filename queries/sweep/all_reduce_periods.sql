-- question: When does the training exchange gradients?
-- row: a ratio of computation to transmission, a seed, a priority and a step, at the lowest rate of flows
-- inputs: cells, transfers
-- figure: gao fig. 5.7
-- param: rate DOUBLE = NULL; rate of flows, flows a second; NULL: the lowest of the sweep
-- column: compute_to_network; computation over transmission time of an iteration (equation 5.1)
-- column: flows_per_s flows/s; background flows that begin at each host
-- column: seed; of the arrivals
-- column: training_priority; same as the background's, or lower
-- column: step; number of the step
-- column: start_s s; start of its first transfer, since the simulation began
-- column: end_s s; end of its last transfer
SELECT compute_to_network, flows_per_s, seed, training_priority, step,
    min(start_ns) / 1e9 AS start_s, max(end_ns) / 1e9 AS end_s
FROM transfers
JOIN cells USING (cell)
WHERE flows_per_s = coalesce($rate, (SELECT min(flows_per_s) FROM cells WHERE flows_per_s > 0))
GROUP BY ALL
ORDER BY compute_to_network, seed, training_priority, step
