-- question: How long does each background flow take with the training at the same priority and at a lower one?
-- row: a ratio of computation to transmission, a rate of flows, a seed and a flow that was completed at both priorities
-- inputs: cells, background_flows
-- column: compute_to_network; computation over transmission time of an iteration (equation 5.1)
-- column: flows_per_s flows/s; background flows that begin at each host
-- column: seed; of the arrivals: the same flows at both priorities
-- column: flow; number of the flow in the order of the arrivals
-- column: size; small below 100 kB, large above 10 MB, medium between
-- column: bytes bytes; payload
-- column: start_ns ns; start of the flow, since the simulation began
-- column: same_ms ms; duration with the training at the same priority
-- column: lower_ms ms; duration with the training at the lower priority
WITH completed AS (
    SELECT compute_to_network, flows_per_s, seed, training_priority, flow, f.bytes, start_ns,
        (end_ns - start_ns) / 1e6 AS ms
    FROM background_flows AS f
    JOIN cells USING (cell)
    WHERE is_measured AND end_ns IS NOT NULL
)
SELECT compute_to_network, flows_per_s, seed, flow,
    CASE WHEN s.bytes < 100_000 THEN 'small' WHEN s.bytes > 10_000_000 THEN 'large' ELSE 'medium' END AS size,
    s.bytes, start_ns, s.ms AS same_ms, l.ms AS lower_ms
FROM (FROM completed WHERE training_priority = 'same') AS s
JOIN (FROM completed WHERE training_priority = 'lower') AS l
    USING (compute_to_network, flows_per_s, seed, flow, bytes, start_ns)
ORDER BY compute_to_network, flows_per_s, seed, flow
