-- question: How many of the measured background flows were completed?
-- row: a ratio of computation to transmission, a rate of flows, a priority, a seed (or all) and a size (or all)
-- inputs: cells, background_flows
-- figure: gao table 5.5
-- column: compute_to_network; computation over transmission time of an iteration (equation 5.1)
-- column: flows_per_s flows/s; background flows that begin at each host
-- column: training_priority; same as the background's, or lower
-- column: seed; of the arrivals; null: all
-- column: size; small below 100 kB, large above 10 MB, medium between; all
-- column: completed flows; that ended within the simulated time
-- column: collected flows; that began between warm-up and cool-down
-- column: completed_pct percent; completed of collected
WITH measured AS (
    SELECT compute_to_network, flows_per_s, training_priority, seed, end_ns,
        CASE WHEN bytes < 100_000 THEN 'small' WHEN bytes > 10_000_000 THEN 'large' ELSE 'medium' END AS size
    FROM background_flows
    JOIN cells USING (cell)
    WHERE is_measured
)
SELECT compute_to_network, flows_per_s, training_priority, seed, coalesce(size, 'all') AS size,
    count(end_ns) AS completed, count(*) AS collected, 100 * count(end_ns) / count(*) AS completed_pct
FROM measured
GROUP BY GROUPING SETS (
    (compute_to_network, flows_per_s, training_priority, seed, size),
    (compute_to_network, flows_per_s, training_priority, seed),
    (compute_to_network, flows_per_s, training_priority, size),
    (compute_to_network, flows_per_s, training_priority)
)
ORDER BY compute_to_network, flows_per_s, training_priority, seed NULLS FIRST, size
