-- question: How long does each layer of a profile compute in an iteration, and how large are its gradients?
-- row: a layer and a pass, in the order of the iteration
-- inputs: profile
-- figure: gao figs. 3.4 to 3.7
-- column: place; number of the row in the iteration
-- column: pass; loading of the inputs, where the profile has it, forward or backward
-- column: layer; number of the layer from the input on; of loading -1
-- column: name; the layer's
-- column: ms ms; how long it computes
-- column: so_far_ms ms; computation from the start of the iteration to its end
-- column: gradient_bytes bytes; size of its gradients
WITH passes AS (
    SELECT CASE WHEN layer < 0 THEN 'loading' ELSE 'forward' END AS pass, layer, name, forward_ms AS ms, gradient_bytes
    FROM profile
    UNION ALL
    SELECT 'backward', layer, name, backward_ms, gradient_bytes FROM profile WHERE layer >= 0
), placed AS (
    SELECT *, row_number() OVER (
        ORDER BY pass = 'backward', CASE WHEN pass = 'backward' THEN -layer ELSE layer END
    ) - 1 AS place
    FROM passes
)
SELECT place, pass, layer, name, ms, sum(ms) OVER (ORDER BY place) AS so_far_ms, gradient_bytes
FROM placed
ORDER BY place
