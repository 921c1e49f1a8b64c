-- question: How much longer does training take when packets are lost?
-- subject: conditions
-- row: a run that has a duration
-- inputs: runs, flows, steps, events, framework_settings, segmentation_offload
-- figure: zerwas fig. 10
-- answer: loss_pct, normalised_duration
-- column: run_id from flows
-- column: framework_setting
-- column: model; name of the trained model; unknown where it is not declared
-- column: batch_size
-- column: topology
-- column: workers
-- column: loss_pct
-- column: congestion_control
-- column: offload; whether the run was captured with segmentation offload (segmentation_offload)
-- column: duration_s s; from when all workers have ended their first step to the last step's end of any; without two logged steps from the first packet to the last
-- column: duration_source; how the duration is known: steps or packets
-- column: steps steps; steps of the run's logs in that time, which are all but the first; null with packets
-- column: left_out_reason; why the run is compared with no other: fault, unfinished; null where it may be
-- column: lossless_runs runs; runs with 0% loss that are otherwise equal and not left out
-- column: lossy_runs runs; runs with loss that are otherwise equal and not left out
-- column: normalised_by; what is compared with theirs: duration, or duration of a step; null where nothing is
-- column: normalised_duration ratio; duration, or duration of a step, over the mean of the lossless runs; null without them
-- Otherwise equal are runs of the same framework, backend, model, optimizer, batch size, topology, workers, delay,
-- bandwidth, congestion control and segmentation offload whose duration is known in the same way. Durations of a step
-- are compared where the runs have different numbers of steps. An unknown delay counts as 0, because the published names
-- state either loss or delay.
-- The paper's duration goes from the first batch's end to the last one's, too: in the first step programs start and
-- connect, which may take longer than all others together. A run in which something was killed on purpose, or whose log
-- has fewer steps than planned, did not train for such a time: a run that a time limit ended says nothing of its length.
WITH logs AS (
    SELECT run_id, worker, arg_min(end_ns, step) AS first_end_ns, max(end_ns) AS last_end_ns
    FROM steps
    GROUP BY run_id, worker
), trained AS (
    SELECT run_id, (max(last_end_ns) - max(first_end_ns)) / 1e9 AS seconds
    FROM logs
    GROUP BY run_id
), counted AS (
    SELECT run_id, count(DISTINCT step) AS logged
    FROM steps
    GROUP BY run_id
), captured AS (
    SELECT run_id, (max(last_seen_ns) - min(first_seen_ns)) / 1e9 AS seconds
    FROM flows
    GROUP BY run_id
), timed AS (
    SELECT run_id, CASE WHEN logged > 1 THEN logged - 1 END AS steps,
           CASE WHEN logged > 1 THEN trained.seconds ELSE captured.seconds END AS duration_s,
           CASE WHEN logged > 1 THEN 'steps' ELSE 'packets' END AS duration_source,
           CASE WHEN run_id IN (SELECT run_id FROM events WHERE kind IN ('process_killed', 'host_killed')) THEN 'fault'
                WHEN logged < planned_steps THEN 'unfinished' END AS left_out_reason
    FROM runs
    LEFT JOIN counted USING (run_id)
    LEFT JOIN trained USING (run_id)
    LEFT JOIN captured USING (run_id)
), measured AS (
    SELECT runs.*, offload, timed.* EXCLUDE (run_id),
           -- a struct, in which null equals null
           {'framework': framework, 'backend': backend, 'model': model, 'optimizer': optimizer, 'batch': batch_size,
            'topology': topology, 'workers': workers, 'ranks': coalesce(ranks_per_host, 1), 'delay': coalesce(delay_ms, 0), 'bandwidth': bandwidth_mbit,
            'congestion_control': congestion_control, 'offload': offload, 'source': duration_source} AS setting
    FROM runs
    JOIN segmentation_offload USING (run_id)
    JOIN timed USING (run_id)
    WHERE duration_s IS NOT NULL
), settings AS (
    SELECT setting, count(*) FILTER (loss_pct = 0) AS lossless_runs, count(*) FILTER (loss_pct > 0) AS lossy_runs,
           avg(duration_s) FILTER (loss_pct = 0) AS lossless_s, avg(duration_s / steps) FILTER (loss_pct = 0) AS lossless_step_s,
           CASE WHEN count(DISTINCT steps) FILTER (loss_pct = 0) = 1 THEN any_value(steps) FILTER (loss_pct = 0) END AS lossless_steps
    FROM measured
    WHERE left_out_reason IS NULL
    GROUP BY setting
), compared AS (
    SELECT m.*, coalesce(lossless_runs, 0) AS lossless_runs, coalesce(lossy_runs, 0) AS lossy_runs,
           CASE WHEN coalesce(lossless_runs, 0) = 0 OR left_out_reason IS NOT NULL THEN NULL
                WHEN m.steps IS NULL OR m.steps = lossless_steps THEN 'duration'
                ELSE 'duration of a step' END AS normalised_by,
           lossless_s, lossless_step_s
    FROM measured AS m
    LEFT JOIN settings AS l ON l.setting = m.setting
)
SELECT run_id, framework_setting, coalesce(model, 'unknown') AS model, batch_size, topology, workers, loss_pct, congestion_control,
       offload, duration_s, duration_source, steps, left_out_reason, lossless_runs, lossy_runs, normalised_by,
       CASE normalised_by WHEN 'duration' THEN duration_s / nullif(lossless_s, 0)
                          WHEN 'duration of a step' THEN duration_s / steps / nullif(lossless_step_s, 0) END AS normalised_duration
FROM compared
JOIN framework_settings USING (run_id)
ORDER BY run_id
