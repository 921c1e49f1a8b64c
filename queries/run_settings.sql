-- question: Which settings of a run may a mean pool?
-- row: a run and a setting
-- inputs: runs, logged_steps, segmentation_offload
-- column: run_id; run
-- column: setting; batch_size, optimizer, delay_ms, loss_pct, bandwidth_mbit, offload (segmentation_offload), model or steps
-- column: value; its value; unknown where it is not declared, or without a log
-- Runs of one configuration (run_configurations) may differ in all of these but model and steps.
WITH texts AS (
    SELECT run_id, batch_size::VARCHAR AS batch_size, optimizer, delay_ms::VARCHAR AS delay_ms, loss_pct::VARCHAR AS loss_pct,
           bandwidth_mbit::VARCHAR AS bandwidth_mbit, offload::VARCHAR AS offload, model, steps::VARCHAR AS steps
    FROM runs
    JOIN segmentation_offload USING (run_id)
    LEFT JOIN logged_steps USING (run_id)
)
SELECT run_id, setting, coalesce(value, 'unknown') AS value
FROM texts
UNPIVOT INCLUDE NULLS (value FOR setting IN (batch_size, optimizer, delay_ms, loss_pct, bandwidth_mbit, offload, model, steps))
ORDER BY run_id, setting
