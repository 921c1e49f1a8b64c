-- question: By which settings are runs grouped, and which may a mean pool?
-- subject: runs
-- row: a run and a setting
-- inputs: runs, logged_steps, segmentation_offload, framework_settings
-- column: run_id from logged_steps
-- column: setting; framework_setting, framework, backend, model, topology, workers, ranks_per_host, batch_size, optimizer, delay_ms, loss_pct, bandwidth_mbit, congestion_control, variant, source, offload (segmentation_offload) or steps (of the log)
-- column: value; its value; unknown where it is not declared, or without a log
WITH texts AS (
    SELECT run_id, framework_setting, framework, backend, model, topology, workers::VARCHAR AS workers,
           coalesce(ranks_per_host, 1)::VARCHAR AS ranks_per_host,
           batch_size::VARCHAR AS batch_size, optimizer, delay_ms::VARCHAR AS delay_ms, loss_pct::VARCHAR AS loss_pct,
           bandwidth_mbit::VARCHAR AS bandwidth_mbit, congestion_control, variant, source, offload::VARCHAR AS offload,
           steps::VARCHAR AS steps
    FROM runs
    JOIN framework_settings USING (run_id)
    JOIN segmentation_offload USING (run_id)
    LEFT JOIN logged_steps USING (run_id)
)
SELECT run_id, setting, coalesce(value, 'unknown') AS value
FROM texts
UNPIVOT INCLUDE NULLS (value FOR setting IN (framework_setting, framework, backend, model, topology, workers, ranks_per_host, batch_size,
                                             optimizer, delay_ms, loss_pct, bandwidth_mbit, congestion_control, variant, source,
                                             offload, steps))
ORDER BY run_id, setting
