-- question: What does a lower priority of the training change, over the seeds?
-- row: a ratio of computation to transmission, a rate of flows and a measure
-- inputs: cells, seed_results
-- figure: gao figs. 5.5, 5.8, 5.10, 5.12 to 5.18
-- column: compute_to_network
-- column: flows_per_s
-- column: expected_utilization share; of the links, by the training (equation 5.2)
-- column: expected_background_utilization share; of the links, by the background (equation 5.3)
-- column: expected_total_utilization share; their sum (equation 5.4)
-- column: background_ratio ratio; bytes a second of the background over those of the training (equation 5.5)
-- column: measure; as of seed_results
-- column: seeds; number of seeds that have it at both priorities
-- column: same; mean over these seeds of the measure at the same priority, in ms or as a share
-- column: lower; mean of the measure at the lower priority, likewise
-- column: change_pct percent; mean of the seeds' changes; negative: less at the lower priority
-- column: change_min_pct percent; the smallest of them
-- column: change_max_pct percent; the largest of them
WITH expected AS (
    SELECT DISTINCT compute_to_network, flows_per_s, expected_utilization, expected_background_utilization,
        background_ratio
    FROM cells
    WHERE error IS NULL
)
SELECT compute_to_network, flows_per_s, expected_utilization, expected_background_utilization,
    expected_utilization + expected_background_utilization AS expected_total_utilization, background_ratio, measure,
    count(change_pct) AS seeds,
    avg(same) FILTER (change_pct IS NOT NULL) AS same, avg(lower) FILTER (change_pct IS NOT NULL) AS lower,
    avg(change_pct) AS change_pct, min(change_pct) AS change_min_pct, max(change_pct) AS change_max_pct
FROM seed_results
JOIN expected USING (compute_to_network, flows_per_s)
GROUP BY ALL
ORDER BY compute_to_network, flows_per_s, measure
