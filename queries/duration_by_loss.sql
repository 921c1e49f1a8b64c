-- question: How much longer does training take when packets are lost?
-- row: a run that has a duration
-- inputs: runs, flows, logged_steps, framework_settings, segmentation_offload
-- figure: zerwas fig. 10
-- column: run_id from flows
-- column: framework_setting
-- column: model; name of the trained model; unknown where it is not declared
-- column: batch_size
-- column: topology
-- column: loss_pct
-- column: congestion_control
-- column: offload; whether the run was captured with segmentation offload (segmentation_offload)
-- column: duration_s s; from the first step's start to the last step's end of any worker; without a log from the first packet to the last
-- column: duration_source; how the duration is known: steps or packets
-- column: steps steps; different steps in the run's logs; null without a log
-- column: lossless_runs runs; runs with 0% loss that are otherwise equal
-- column: normalised_by; what is compared with theirs: duration, or duration of a step; null without lossless runs
-- column: normalised_duration ratio; duration, or duration of a step, over the mean of the lossless runs; null without them
-- Otherwise equal are runs of the same framework, backend, model, optimizer, batch size, topology, workers, delay,
-- bandwidth, congestion control and segmentation offload whose duration is known in the same way. Durations of a step
-- are compared where the runs have different numbers of steps. An unknown delay counts as 0, because the published names
-- state either loss or delay.
WITH trained AS (
    SELECT run_id, steps, (end_ns - start_ns) / 1e9 AS seconds
    FROM logged_steps
), captured AS (
    SELECT run_id, (max(last_seen_ns) - min(first_seen_ns)) / 1e9 AS seconds
    FROM flows
    GROUP BY run_id
), measured AS (
    SELECT runs.*, offload, trained.steps, coalesce(trained.seconds, captured.seconds) AS duration_s,
           CASE WHEN trained.seconds IS NULL THEN 'packets' ELSE 'steps' END AS duration_source,
           -- a struct, in which null equals null
           {'framework': framework, 'backend': backend, 'model': model, 'optimizer': optimizer, 'batch': batch_size,
            'topology': topology, 'workers': workers, 'delay': coalesce(delay_ms, 0), 'bandwidth': bandwidth_mbit,
            'congestion_control': congestion_control, 'offload': offload, 'source': duration_source} AS setting
    FROM runs
    JOIN segmentation_offload USING (run_id)
    LEFT JOIN trained USING (run_id)
    LEFT JOIN captured USING (run_id)
    WHERE coalesce(trained.seconds, captured.seconds) IS NOT NULL
), lossless AS (
    SELECT setting, count(*) AS lossless_runs, avg(duration_s) AS lossless_s, avg(duration_s / steps) AS lossless_step_s,
           CASE WHEN count(DISTINCT steps) = 1 THEN any_value(steps) END AS lossless_steps
    FROM measured
    WHERE loss_pct = 0
    GROUP BY setting
), compared AS (
    SELECT m.*, lossless_runs,
           CASE WHEN lossless_runs IS NULL THEN NULL
                WHEN m.steps IS NULL OR m.steps = lossless_steps THEN 'duration'
                ELSE 'duration of a step' END AS normalised_by,
           lossless_s, lossless_step_s
    FROM measured AS m
    LEFT JOIN lossless AS l ON l.setting = m.setting
)
SELECT run_id, framework_setting, coalesce(model, 'unknown') AS model, batch_size, topology, loss_pct, congestion_control, offload,
       duration_s, duration_source, steps, coalesce(lossless_runs, 0) AS lossless_runs, normalised_by,
       CASE normalised_by WHEN 'duration' THEN duration_s / nullif(lossless_s, 0)
                          ELSE duration_s / steps / nullif(lossless_step_s, 0) END AS normalised_duration
FROM compared
JOIN framework_settings USING (run_id)
ORDER BY run_id
