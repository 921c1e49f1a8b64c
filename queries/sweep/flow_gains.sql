-- question: When do the small flows begin whose duration a lower priority of the training changes?
-- row: a ratio of computation to transmission, a seed and a small flow of paired_flows, at the lowest rate of flows
-- inputs: cells, paired_flows
-- figure: gao fig. 5.7
-- param: rate DOUBLE = NULL; rate of flows, flows a second; NULL: the lowest of the sweep
-- column: compute_to_network
-- column: flows_per_s
-- column: seed; of the arrivals
-- column: flow
-- column: start_s s; start of the flow, since the simulation began
-- column: same_ms
-- column: lower_ms
-- column: gain_ms ms; same_ms less lower_ms: what the lower priority saves
SELECT compute_to_network, flows_per_s, seed, flow, start_ns / 1e9 AS start_s, same_ms, lower_ms,
    same_ms - lower_ms AS gain_ms
FROM paired_flows
WHERE size = 'small'
    AND flows_per_s = coalesce($rate, (SELECT min(flows_per_s) FROM cells WHERE flows_per_s > 0))
ORDER BY compute_to_network, seed, start_s, flow
