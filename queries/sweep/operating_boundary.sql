-- question: At which loads can the training have a lower priority without being slower?
-- row: a ratio of computation to transmission and a rate of flows
-- inputs: sharing_results
-- figure: gao fig. 5.19
-- column: compute_to_network
-- column: flows_per_s
-- column: expected_utilization
-- column: expected_background_utilization
-- column: iteration_change_pct percent; longer iterations at the lower priority, the mean of the seeds; null: at one priority no whole iteration was measured
-- column: small_change_pct percent; change of the mean duration of small flows, the mean of the seeds
-- column: large_change_pct percent; change of the mean duration of large flows, the mean of the seeds
-- column: region; by iteration_change_pct: green below 1%, yellow to 30%, red above (section 5.4.6); null as there
-- Section 5.4.6 gives no limit for "without any performance impact". Here it is the lower limit of that section's
-- yellow.
SELECT compute_to_network, flows_per_s, expected_utilization, expected_background_utilization,
    any_value(change_pct) FILTER (measure = 'iteration_ms') AS iteration_change_pct,
    any_value(change_pct) FILTER (measure = 'small_mean_ms') AS small_change_pct,
    any_value(change_pct) FILTER (measure = 'large_mean_ms') AS large_change_pct,
    CASE WHEN iteration_change_pct < 1 THEN 'green' WHEN iteration_change_pct <= 30 THEN 'yellow'
        WHEN iteration_change_pct > 30 THEN 'red' END AS region
FROM sharing_results
GROUP BY compute_to_network, flows_per_s, expected_utilization, expected_background_utilization
ORDER BY compute_to_network DESC, flows_per_s
