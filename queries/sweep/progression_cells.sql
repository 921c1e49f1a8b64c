-- question: Which cells do the thesis's figures of the training's progression show?
-- row: a cell with 92 flows/s and a ratio of computation to transmission of 4 or 2, of the smallest seed
-- inputs: cells
-- figure: gao figs. 5.20 to 5.23
-- column: cell; number of the cell
-- column: compute_to_network; computation over transmission time of an iteration (equation 5.1)
-- column: flows_per_s flows/s; background flows that begin at each host
-- column: training_priority; same as the background's, or lower
SELECT cell, compute_to_network, flows_per_s, training_priority
FROM cells
WHERE error IS NULL AND flows_per_s = 92 AND compute_to_network IN (4, 2) AND seed = (SELECT min(seed) FROM cells)
ORDER BY compute_to_network DESC, training_priority DESC
