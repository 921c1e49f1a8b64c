-- question: By how much do two runs, or two groups of runs, differ in every headline figure?
-- subject: runs
-- row: a figure; none where no run is named, and an error where a pattern matches none
-- inputs: runs, flows, flow_windows, steps, step_flows, run_spans, total_volume, flow_counts, step_volume, step_time_rows, student_t, run_copies
-- answer: figure, difference, verdict
-- param: a_runs VARCHAR = NULL; run_id of the first run, or a GLOB pattern (torch-*-ring) for a group; several separated by |
-- param: b_runs VARCHAR = NULL; run_id of the second run, or a GLOB pattern for a group; several separated by |
-- needs: a_runs, b_runs
-- figure: zerwas table I (interval by Student's t), of a difference
-- column: place; number of the figure, from 1
-- column: figure; name of the figure
-- column: unit; unit of the means, the difference and its interval
-- column: a_n runs; runs of the first group with a value; runs that hold the same packets (run_copies) count once
-- column: a_mean; mean over them, in `unit`
-- column: b_n runs; the same of the second group
-- column: b_mean; mean over them, in `unit`
-- column: difference; b_mean - a_mean, in `unit`
-- column: difference_low; lower end of the 95% interval of the difference, in `unit`; null with fewer than three runs on a side
-- column: difference_high; its upper end, in `unit`
-- column: ratio ratio; b_mean over a_mean
-- column: verdict; differs (the 95% interval is without 0), not told apart (it has 0), or why it cannot be told
-- The unit of inference is the run: the interval is Welch's over runs, with the degrees of freedom rounded down, and needs
-- three of each side. Steps are not a sample of the setting: they are alike within a run, and runs of one setting differ
-- (intervals over steps call 20 of 36 pairs of equal runs of data/dataset different: benchmarks/within_run.py). 15 figures at 95% call
-- 0.75 different where nothing differs. The duration of a step is the mean over its workers and over the steps without the
-- first (step_time_rows). Peak throughput is that of the busiest 10 ms, counted from the run's first packet; retransmitted
-- is a share of packets; accuracy is the mean over the workers' last steps. Duration and mean throughput are from the first step's
-- start to the last one's end, by the log or as inferred, where that is known of all runs named (run_spans); else of the whole
-- capture, whose idle time before and after the training counts. Their names say which.
WITH thresholds AS (
    SELECT 3 AS least_runs
), patterns AS (
    SELECT 'a' AS side, unnest(string_split($a_runs, '|')) AS pattern
    UNION ALL
    SELECT 'b', unnest(string_split($b_runs, '|'))
), named AS (
    SELECT DISTINCT side,
           CASE WHEN run_id IS NULL THEN error(side || '_runs: no run matches ' || pattern || '; the table runs has their names') ELSE run_id END AS run_id
    FROM patterns
    LEFT JOIN runs ON run_id GLOB pattern
), members AS (
    SELECT side, min(run_id) AS run_id
    FROM named
    LEFT JOIN run_copies USING (run_id)
    GROUP BY side, coalesce(first_run_id, run_id)
), chosen AS (
    SELECT DISTINCT run_id
    FROM members
), stretches AS (  -- one for all runs: a training and a capture do not compare
    SELECT CASE WHEN bool_and(coalesce(span_source = 'training', false)) THEN 'training' ELSE 'capture' END AS stretch
    FROM chosen
    LEFT JOIN run_spans USING (run_id)
), trainings AS (
    SELECT run_id, (any_value(end_ns) - any_value(begin_ns)) / 1e9 AS training_s, sum(wire_bytes) AS training_bytes
    FROM run_spans
    SEMI JOIN chosen USING (run_id)
    JOIN flow_windows USING (run_id)
    WHERE span_source = 'training' AND window_start_ns >= begin_ns AND window_start_ns < end_ns
    GROUP BY run_id
), figures AS (
    SELECT unnest(range(1, 16)) AS place,
           unnest(['total volume', 'payload', 'packets', 'duration of the ' || stretch, 'steps', 'volume of a step as captured', 'payload of a step',
                   'duration of a step', 'mean throughput of the ' || stretch, 'peak throughput', 'flows', 'large flows',
                   'share before training', 'retransmitted share', 'accuracy at the end']) AS figure,
           unnest(['bytes', 'bytes', 'packets', 's', 'steps', 'bytes', 'bytes', 'ms', 'Gbit/s', 'Gbit/s', 'flows', 'flows',
                   'share of wire bytes', 'share of packets', 'share']) AS unit
    FROM stretches
), spans AS (
    SELECT run_id, min(first_seen_ns) AS first_ns, sum(retransmitted_packets) / nullif(sum(packets), 0) AS retransmitted
    FROM flows
    SEMI JOIN chosen USING (run_id)
    GROUP BY run_id
), peak_windows AS (
    SELECT run_id, (window_start_ns - (first_ns - first_ns % window_ns)) // greatest(10_000_000, window_ns) AS number,
           sum(wire_bytes) * 8 / max(greatest(10_000_000, window_ns)) AS gbit_per_s
    FROM flow_windows
    JOIN spans USING (run_id)
    GROUP BY run_id, number
), peaks AS (
    SELECT run_id, max(gbit_per_s) AS peak
    FROM peak_windows
    GROUP BY run_id
), before_training AS (
    SELECT run_id, coalesce(sum(wire_bytes) FILTER (position = 'before'), 0) / sum(wire_bytes) AS before_share
    FROM step_flows
    SEMI JOIN chosen USING (run_id)
    GROUP BY run_id
), last_steps AS (
    SELECT run_id, worker, arg_max(accuracy, step) AS accuracy
    FROM steps
    SEMI JOIN chosen USING (run_id)
    GROUP BY ALL
), accuracies AS (
    SELECT run_id, avg(accuracy) AS accuracy
    FROM last_steps
    GROUP BY run_id
), logged AS (
    SELECT DISTINCT run_id, step
    FROM steps
    SEMI JOIN chosen USING (run_id)
), step_means AS (  -- a step without a packet counts too
    SELECT run_id, avg(coalesce(wire_bytes, 0)) AS step_wire, avg(coalesce(payload_bytes, 0)) AS step_payload, avg(step_ms) AS step_ms
    FROM logged
    LEFT JOIN step_volume USING (run_id, step)
    LEFT JOIN (SELECT run_id, step, step_ms FROM step_time_rows()) USING (run_id, step)
    GROUP BY run_id
), stretch_values AS (
    SELECT run_id, CASE stretch WHEN 'training' THEN training_s ELSE duration_s END AS stretch_s,
           CASE stretch WHEN 'training' THEN training_bytes ELSE wire_bytes END AS stretch_bytes
    FROM total_volume
    CROSS JOIN stretches
    LEFT JOIN trainings USING (run_id)
), run_values AS (
    SELECT side, run_id, unnest(range(1, 16)) AS place,
           unnest([v.wire_bytes, v.payload_bytes, v.packets, stretch_s, nullif(v.steps, 0), step_wire, step_payload,
                   step_ms, stretch_bytes * 8 / nullif(stretch_s, 0) / 1e9, peak, v.flows, large_flows, before_share,
                   retransmitted, accuracy]::DOUBLE[]) AS value
    FROM members
    JOIN total_volume AS v USING (run_id)
    JOIN stretch_values USING (run_id)
    LEFT JOIN (SELECT run_id, large_flows FROM flow_counts()) USING (run_id)
    LEFT JOIN spans USING (run_id)
    LEFT JOIN peaks USING (run_id)
    LEFT JOIN before_training USING (run_id)
    LEFT JOIN accuracies USING (run_id)
    LEFT JOIN step_means USING (run_id)
), groups AS (
    SELECT side, place, count(value) AS n, avg(value) AS mean, coalesce(var_samp(value), 0) / count(value) AS error
    FROM run_values
    WHERE value IS NOT NULL
    GROUP BY ALL
), sides AS (
    SELECT place, coalesce(max(n) FILTER (side = 'a'), 0) AS a_n, coalesce(max(n) FILTER (side = 'b'), 0) AS b_n,
           max(mean) FILTER (side = 'a') AS a_mean, max(mean) FILTER (side = 'b') AS b_mean,
           max(error) FILTER (side = 'a') AS a_error, max(error) FILTER (side = 'b') AS b_error
    FROM groups
    GROUP BY place
), welch AS (
    SELECT *, a_error + b_error AS error,
           least(greatest(floor(error ** 2 / nullif(a_error ** 2 / (a_n - 1) + b_error ** 2 / (b_n - 1), 0)), 1), 1000)::BIGINT
               AS df
    FROM sides
    WHERE least(a_n, b_n) >= (SELECT least_runs FROM thresholds)
), intervals AS (
    SELECT place, CASE WHEN error = 0 THEN 0 ELSE t * sqrt(error) END AS half_width
    FROM welch
    LEFT JOIN student_t USING (df)
)
SELECT place, figure, unit, coalesce(a_n, 0) AS a_n, a_mean, coalesce(b_n, 0) AS b_n, b_mean,
       b_mean - a_mean AS difference,
       b_mean - a_mean - half_width AS difference_low,
       b_mean - a_mean + half_width AS difference_high,
       b_mean / nullif(a_mean, 0) AS ratio,
       CASE WHEN b_mean - a_mean IS NULL THEN 'cannot be told: a side has no value'
            WHEN half_width IS NULL THEN 'cannot be told: ' || CASE WHEN a_n = 1 AND b_n = 1 THEN 'one run' ELSE a_n || ' and ' || b_n || ' runs' END
                                         || ' a side; at least 3 can tell'
            WHEN abs(b_mean - a_mean) <= half_width THEN 'not told apart'
            ELSE 'differs' END AS verdict
FROM figures
LEFT JOIN sides USING (place)
LEFT JOIN intervals USING (place)
WHERE EXISTS (FROM members)
ORDER BY place
