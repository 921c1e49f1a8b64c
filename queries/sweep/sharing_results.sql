-- question: What does a lower priority of the training change, over the seeds?
-- row: a ratio of computation to transmission, a rate of flows and a measure
-- inputs: cells, seed_results, student_t
-- figure: gao figs. 5.5, 5.8, 5.10, 5.12 to 5.18
-- column: compute_to_network
-- column: flows_per_s
-- column: expected_utilization share; of the links, by the training (equation 5.2)
-- column: expected_background_utilization share; of the links, by the background (equation 5.3)
-- column: expected_total_utilization share; their sum (equation 5.4)
-- column: background_ratio ratio; bytes a second of the background over those of the training (equation 5.5)
-- column: measure; as of seed_results
-- column: seeds; number of seeds that have it at both priorities: n of the interval
-- column: same; mean over these seeds of the measure at the same priority, in ms or as a share
-- column: lower; mean of the measure at the lower priority, likewise
-- column: change_pct percent; mean of the seeds' changes; negative: less at the lower priority
-- column: change_low_pct percent; lower end of the 95% interval of this mean, by Student's t on the seeds' changes; null: fewer than five seeds, or one that lacks the measure
-- column: change_high_pct percent; upper end
-- A seed is one draw of the arrivals, the same at both priorities: its change is one value. Flows and iterations of a
-- seed meet each other in the same queues, so they are no values of their own. A seed without a whole iteration had
-- longer ones than those that were measured; a mean without it is too small.
WITH thresholds AS (
    SELECT 5 AS least_seeds
), expected AS (
    SELECT DISTINCT compute_to_network, flows_per_s, expected_utilization, expected_background_utilization,
        background_ratio
    FROM cells
    WHERE error IS NULL
), over_seeds AS (
    SELECT compute_to_network, flows_per_s, measure, count(*) AS all_seeds, count(change_pct) AS seeds,
        avg(same) FILTER (change_pct IS NOT NULL) AS same, avg(lower) FILTER (change_pct IS NOT NULL) AS lower,
        avg(change_pct) AS change_pct, stddev_samp(change_pct) / sqrt(seeds) AS standard_error
    FROM seed_results
    GROUP BY ALL
), with_reach AS (
    SELECT over_seeds.*, CASE WHEN seeds >= least_seeds AND seeds = all_seeds THEN t * standard_error END AS reach
    FROM over_seeds
    CROSS JOIN thresholds
    LEFT JOIN student_t ON df = least(seeds - 1, 1000)
)
SELECT compute_to_network, flows_per_s, expected_utilization, expected_background_utilization,
    expected_utilization + expected_background_utilization AS expected_total_utilization, background_ratio, measure,
    seeds, same, lower, change_pct, change_pct - reach AS change_low_pct, change_pct + reach AS change_high_pct
FROM with_reach
JOIN expected USING (compute_to_network, flows_per_s)
ORDER BY compute_to_network, flows_per_s, measure
