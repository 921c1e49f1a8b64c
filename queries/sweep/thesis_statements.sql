-- question: How far are the sweep's results from the numbers that the thesis's text states?
-- row: a statement of gao.csv of a cell
-- inputs: thesis, sharing_results
-- column: compute_to_network
-- column: flows_per_s
-- column: measure; as of sharing_results
-- column: stated_pct percent; change at the lower priority that the text states
-- column: section; of the thesis
-- column: words; what the text says about the number
-- column: seeds; ours, n of the interval
-- column: change_pct percent; ours; null: the sweep has no such cell, or measured none
-- column: change_low_pct percent; lower end of its 95% interval, as of sharing_results
-- column: change_high_pct percent; upper end
-- column: difference_pct percentage points; ours less stated
-- column: here; where our interval is: below or above the stated number; cannot be told: it holds the number, or there is none
-- The thesis gives no interval of its numbers, so this says where our mean is, and not whether theirs differs from it.
SELECT t.compute_to_network, t.flows_per_s, t.measure, stated_pct, section, words, seeds, change_pct, change_low_pct,
    change_high_pct, change_pct - stated_pct AS difference_pct,
    CASE WHEN change_high_pct < stated_pct THEN 'below' WHEN change_low_pct > stated_pct THEN 'above'
        ELSE 'cannot be told' END AS here
FROM thesis AS t
LEFT JOIN sharing_results AS r USING (compute_to_network, flows_per_s, measure)
ORDER BY t.compute_to_network DESC, t.flows_per_s, t.measure, section, stated_pct
