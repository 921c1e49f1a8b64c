-- question: At which loads can the training have a lower priority without being slower?
-- row: a ratio of computation to transmission and a rate of flows
-- inputs: sharing_results
-- figure: gao fig. 5.19
-- column: compute_to_network
-- column: flows_per_s
-- column: expected_utilization
-- column: expected_background_utilization
-- column: seeds; number of seeds in which whole iterations were measured at both priorities
-- column: iteration_change_pct percent; longer iterations at the lower priority, the mean of the seeds; null: at one priority no whole iteration was measured
-- column: iteration_low_pct percent; lower end of its 95% interval, as of sharing_results; null likewise
-- column: iteration_high_pct percent; upper end
-- column: small_change_pct percent; change of the mean duration of small flows, the mean of the seeds
-- column: small_low_pct percent; lower end of its 95% interval
-- column: small_high_pct percent; upper end
-- column: large_change_pct percent; change of the mean duration of large flows, the mean of the seeds
-- column: large_low_pct percent; lower end of its 95% interval
-- column: large_high_pct percent; upper end
-- column: region; of the whole interval of the iteration's change: green below 1%, yellow from there to 30%, red above (section 5.4.6); cannot be told: it holds a limit, or there is none
-- column: seeds_to_tell; seeds with which four of five campaigns would tell the region, if mean and scatter stay; null: it is told, or there is no interval
-- Section 5.4.6 gives no limit for "without any performance impact". Here it is the lower limit of that section's
-- yellow.
WITH thresholds AS (
    -- 0.8416 and 1.96: the 80% and the 97.5% point of the normal distribution, for the power of 80%
    SELECT 1.0 AS yellow, 30.0 AS red, 1 + 0.8416 / 1.96 AS reaches
), by_load AS (
    SELECT compute_to_network, flows_per_s, expected_utilization, expected_background_utilization,
        any_value(seeds) FILTER (measure = 'iteration_ms') AS seeds,
        any_value(change_pct) FILTER (measure = 'iteration_ms') AS iteration_change_pct,
        any_value(change_low_pct) FILTER (measure = 'iteration_ms') AS iteration_low_pct,
        any_value(change_high_pct) FILTER (measure = 'iteration_ms') AS iteration_high_pct,
        any_value(change_pct) FILTER (measure = 'small_mean_ms') AS small_change_pct,
        any_value(change_low_pct) FILTER (measure = 'small_mean_ms') AS small_low_pct,
        any_value(change_high_pct) FILTER (measure = 'small_mean_ms') AS small_high_pct,
        any_value(change_pct) FILTER (measure = 'large_mean_ms') AS large_change_pct,
        any_value(change_low_pct) FILTER (measure = 'large_mean_ms') AS large_low_pct,
        any_value(change_high_pct) FILTER (measure = 'large_mean_ms') AS large_high_pct
    FROM sharing_results
    GROUP BY ALL
)
SELECT by_load.*,
    CASE WHEN iteration_high_pct < yellow THEN 'green'
        WHEN iteration_low_pct >= yellow AND iteration_high_pct <= red THEN 'yellow'
        WHEN iteration_low_pct > red THEN 'red' ELSE 'cannot be told' END AS region,
    CASE WHEN region = 'cannot be told' THEN ceil(seeds * (
        reaches * (iteration_high_pct - iteration_change_pct)
        / nullif(least(abs(iteration_change_pct - yellow), abs(iteration_change_pct - red)), 0)
    ) ** 2)::BIGINT END AS seeds_to_tell
FROM by_load
CROSS JOIN thresholds
ORDER BY compute_to_network DESC, flows_per_s
