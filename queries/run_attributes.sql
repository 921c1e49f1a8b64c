-- question: Which attributes of a run may explain what it sends and how long it takes?
-- row: a run
-- inputs: runs, segmentation_offload
-- figure: zerwas section VI, the right side of equation (1)
-- column: run_id from segmentation_offload
-- column: model_bytes
-- column: model_size_mb
-- column: nominal_bytes bytes; model_size_mb in bytes
-- column: framework_backend; framework and backend joined by a hyphen, one attribute as in the paper
-- column: batch_size
-- column: topology
-- column: workers
-- column: delay_ms
-- column: loss_pct
-- column: bandwidth_mbit
-- column: model
-- column: optimizer
-- column: offload; whether the run was captured with segmentation offload (segmentation_offload)
-- column: source
SELECT run_id, model_bytes, model_size_mb, model_size_mb * 1e6 AS nominal_bytes,
       framework || coalesce('-' || backend, '') AS framework_backend,
       batch_size, topology, workers, delay_ms, loss_pct, bandwidth_mbit, model, optimizer, offload, source
FROM runs
JOIN segmentation_offload USING (run_id)
ORDER BY run_id
