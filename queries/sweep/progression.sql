-- question: When are the partitions of each buffer transferred, and when is each layer computed?
-- row: a transfer of a partition that a worker receives, or a pass of a layer at worker 0
-- inputs: transfers, layers, buffers
-- figure: gao figs. 5.20 to 5.23
-- param: number BIGINT = 0; the cell
-- param: receiver BIGINT = NULL; number of the worker that receives; NULL: all
-- column: kind; transfer, forward or backward
-- column: step; number of the step
-- column: layer; number of the layer from the input on; of a transfer the first of its buffer
-- column: last_layer; of a transfer the last layer of its buffer; else the layer
-- column: start_ms ms; start, since the simulation began
-- column: duration_ms ms; how long it took
SELECT 'transfer' AS kind, step, first_layer AS layer, last_layer, start_ns / 1e6 AS start_ms,
    (end_ns - start_ns) / 1e6 AS duration_ms
FROM transfers
JOIN buffers USING (cell, buffer)
WHERE cell = $number AND worker = coalesce($receiver, worker)
UNION ALL
SELECT kind, step, layer, layer, start_ns / 1e6, (end_ns - start_ns) / 1e6
FROM layers
WHERE cell = $number
ORDER BY start_ms, kind, layer
