-- question: How long does a run take compared with equal runs that lose another share of packets, and which attributes may explain it?
-- subject: conditions
-- row: a run
-- inputs: duration_by_loss, run_attributes
-- figure: zerwas fig. 10, as the data of a regression
-- column: run_id
-- column: duration_s s; duration of the run, as in duration_by_loss; null where it has none
-- column: normalised_duration ratio; as in duration_by_loss; null without lossless runs that are otherwise equal
-- column: comparable_s s; duration over the number of steps; without a log the whole duration
-- column: setting; all that duration_by_loss holds equal, as text
-- column: left_out_reason; why the run shows nothing of the effect of loss within its setting; null where it does
-- column: model_bytes
-- column: model_size_mb
-- column: nominal_bytes
-- column: framework_backend
-- column: batch_size
-- column: topology
-- column: workers
-- column: ranks_per_host
-- column: delay_ms
-- column: loss_pct
-- column: bandwidth_mbit
-- column: model from run_attributes
-- column: optimizer
-- column: offload
-- column: source
-- column: congestion_control
-- column: epochs
-- column: variant
-- column: planned_steps
-- column: steps from run_attributes
-- column: finished
-- column: fault
-- column: law_factor
-- column: disturbance
-- normalised_duration is for reading: the lossless runs of a setting have mean 1 by construction, so that a regression
-- of it would count degrees of freedom that do not exist. comparable_s can be compared within a setting.
WITH measured AS (
    SELECT *, nullif(duration_s, 0) / coalesce(nullif(counted_steps, 0), 1) AS comparable_s,
           concat_ws(', ', coalesce(framework_backend, 'unknown framework'), coalesce(model, 'unknown model'),
                     coalesce(optimizer, 'unknown optimizer'), 'batch ' || batch_size,
                     coalesce(topology, 'unknown topology'), workers || ' workers', nullif(ranks_per_host, 1) || ' ranks a host',
                     nullif(delay_ms, 0) || ' ms delay',
                     bandwidth_mbit || ' Mbit/s', congestion_control, CASE WHEN offload THEN 'offload' END,
                     CASE duration_source WHEN 'packets' THEN 'duration by packets' END) AS setting
    FROM run_attributes
    LEFT JOIN (SELECT run_id, duration_s, duration_source, steps AS counted_steps, normalised_duration
               FROM duration_by_loss)
        USING (run_id)
), losses AS (
    SELECT setting, count(DISTINCT loss_pct) AS loss_values
    FROM measured
    WHERE comparable_s IS NOT NULL
    GROUP BY setting
)
SELECT run_id, duration_s, normalised_duration, comparable_s, setting,
       CASE WHEN comparable_s IS NULL THEN 'no duration'
            WHEN loss_pct IS NULL THEN 'loss_pct is missing'
            WHEN loss_values < 2 THEN 'no run of that setting with other loss' END AS left_out_reason,
       measured.* EXCLUDE (run_id, duration_s, duration_source, counted_steps, normalised_duration, comparable_s, setting)
FROM measured
LEFT JOIN losses USING (setting)
ORDER BY run_id
