-- question: What does a lower priority of the training change, for each seed?
-- row: a ratio of computation to transmission, a rate of flows, a seed and a measure, where cells of both priorities are
-- inputs: cells, paired_flows
-- column: compute_to_network
-- column: flows_per_s
-- column: seed; of the arrivals
-- column: measure; iteration_ms; SIZE_mean_ms, SIZE_p90_ms, SIZE_p99_ms of the flows of paired_flows; utilization and background_utilization as measured
-- column: same; at the same priority, in ms or as a share; null: no whole iteration or flow was measured
-- column: lower; at the lower priority, likewise
-- column: change_pct percent; lower less same, of same; negative: less at the lower priority
WITH by_priority AS (
    SELECT compute_to_network, flows_per_s, seed, training_priority, unnest([
            {measure: 'iteration_ms', value: iteration_ms},
            {measure: 'utilization', value: utilization},
            {measure: 'background_utilization', value: background_utilization}
        ], recursive := true)
    FROM cells
    WHERE error IS NULL
), of_cells AS (
    SELECT s.compute_to_network, s.flows_per_s, s.seed, s.measure, s.value AS same, l.value AS lower
    FROM by_priority AS s
    JOIN by_priority AS l USING (compute_to_network, flows_per_s, seed, measure)
    WHERE s.training_priority = 'same' AND l.training_priority = 'lower'
), by_size AS (
    SELECT compute_to_network, flows_per_s, seed, size,
        avg(same_ms) AS same_mean, avg(lower_ms) AS lower_mean,
        quantile_cont(same_ms, [0.9, 0.99]) AS same_q, quantile_cont(lower_ms, [0.9, 0.99]) AS lower_q
    FROM paired_flows
    GROUP BY ALL
), of_flows AS (
    SELECT compute_to_network, flows_per_s, seed, unnest([
            {measure: size || '_mean_ms', same: same_mean, lower: lower_mean},
            {measure: size || '_p90_ms', same: same_q[1], lower: lower_q[1]},
            {measure: size || '_p99_ms', same: same_q[2], lower: lower_q[2]}
        ], recursive := true)
    FROM by_size
)
SELECT *, 100 * (lower - same) / nullif(same, 0) AS change_pct
FROM (FROM of_cells UNION ALL BY NAME FROM of_flows)
ORDER BY compute_to_network, flows_per_s, seed, measure
