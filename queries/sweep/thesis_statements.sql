-- question: How far are the sweep's results from the numbers that the thesis's text states?
-- row: a statement of gao.csv of a cell
-- inputs: thesis, sharing_results
-- column: compute_to_network
-- column: flows_per_s
-- column: measure; as of sharing_results
-- column: stated_pct percent; change at the lower priority that the text states
-- column: section; of the thesis
-- column: words; what the text says about the number
-- column: change_pct percent; ours; null: the sweep has no such cell, or measured none
-- column: difference_pct percentage points; ours less stated
SELECT t.compute_to_network, t.flows_per_s, t.measure, stated_pct, section, words, change_pct,
    change_pct - stated_pct AS difference_pct
FROM thesis AS t
LEFT JOIN sharing_results AS r USING (compute_to_network, flows_per_s, measure)
ORDER BY t.compute_to_network DESC, t.flows_per_s, t.measure, section, stated_pct
