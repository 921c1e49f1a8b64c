-- question: Which attributes of a run may explain what it sends and how long it takes?
-- row: a run
-- inputs: runs
-- figure: zerwas section VI, the right side of equation (1)
-- model_bytes is what a step exchanges, nominal_bytes the published size (model_size_mb) in bytes. Framework and backend are
-- one attribute, as in the paper.
SELECT run_id, model_bytes, model_size_mb, model_size_mb * 1e6 AS nominal_bytes,
       framework || coalesce('-' || backend, '') AS framework_backend,
       batch_size, topology, workers, delay_ms, loss_pct, bandwidth_mbit, model, optimizer, source
FROM runs
ORDER BY run_id
