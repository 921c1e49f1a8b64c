-- question: By how much do two runs, or two groups of runs, differ in every headline figure?
-- row: a figure; none where no run is named, and an error where a pattern matches none
-- inputs: runs, flows, flow_windows, steps, step_flows, total_volume, flow_counts, step_volume, student_t
-- param: a_runs VARCHAR = NULL; run_id of the first run, or a GLOB pattern (torch-*-ring) for a group; several separated by |
-- param: b_runs VARCHAR = NULL; run_id of the second run, or a GLOB pattern for a group; several separated by |
-- needs: a_runs, b_runs
-- figure: zerwas table I (interval by Student's t), of a difference
-- column: place; number of the figure, from 1
-- column: figure; name of the figure
-- column: unit; unit of the means, the difference and its interval
-- column: replicated_by; what the interval is computed from: runs, steps or nothing
-- column: a_n replicates; runs (or steps) of the first group with a value
-- column: a_mean; mean of the first group, in `unit`
-- column: b_n replicates; the same of the second group
-- column: b_mean; mean of the second group, in `unit`
-- column: difference; b_mean - a_mean, in `unit`
-- column: difference_low; lower end of the 95% interval of the difference, in `unit`; null where replicated_by is nothing
-- column: difference_high; its upper end, in `unit`
-- column: ratio ratio; b_mean over a_mean
-- The interval is Welch's, with the degrees of freedom rounded down. replicated_by is runs where both groups have
-- several with a value; else steps, for the figures that each step has; else nothing. Means are of the replicates.
-- Steps of a run are rarely independent of one another, so an interval of steps holds for these runs only, and is
-- rather too narrow. The duration of a step is the mean over its workers, without a first step whose start is
-- estimated. Peak throughput is that of the busiest 10 ms, counted from the run's first packet; retransmitted is a
-- share of packets; accuracy is the mean over the workers' last steps.
WITH patterns AS (
    SELECT 'a' AS side, unnest(string_split($a_runs, '|')) AS pattern
    UNION ALL
    SELECT 'b', unnest(string_split($b_runs, '|'))
), members AS (
    SELECT DISTINCT side,
           CASE WHEN run_id IS NULL THEN error(side || '_runs: no run matches ' || pattern || '; the table runs has their names') ELSE run_id END AS run_id
    FROM patterns
    LEFT JOIN runs ON run_id GLOB pattern
), chosen AS (
    SELECT DISTINCT run_id
    FROM members
), figures AS (
    SELECT unnest(range(1, 16)) AS place,
           unnest(['total volume', 'payload', 'packets', 'duration', 'steps', 'volume of a step', 'payload of a step',
                   'duration of a step', 'mean throughput', 'peak throughput', 'flows', 'large flows',
                   'share before training', 'retransmitted share', 'accuracy at the end']) AS figure,
           unnest(['bytes', 'bytes', 'packets', 's', 'steps', 'bytes', 'bytes', 'ms', 'Gbit/s', 'Gbit/s', 'flows', 'flows',
                   'share of wire bytes', 'share of packets', 'share']) AS unit
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
), durations AS (
    SELECT run_id, step, avg(end_ns - start_ns) FILTER (start_source IS DISTINCT FROM 'estimated') / 1e6 AS step_ms
    FROM steps
    SEMI JOIN chosen USING (run_id)
    GROUP BY ALL
), run_steps AS (  -- a step without a packet counts too
    SELECT run_id, step, coalesce(wire_bytes, 0) AS step_wire, coalesce(payload_bytes, 0) AS step_payload, step_ms
    FROM durations
    LEFT JOIN step_volume USING (run_id, step)
), step_means AS (
    SELECT run_id, avg(step_wire) AS step_wire, avg(step_payload) AS step_payload, avg(step_ms) AS step_ms
    FROM run_steps
    GROUP BY run_id
), run_values AS (
    SELECT side, run_id, 'runs' AS replicate, unnest(range(1, 16)) AS place,
           unnest([v.wire_bytes, v.payload_bytes, v.packets, duration_s, nullif(v.steps, 0), step_wire, step_payload,
                   step_ms, v.wire_bytes * 8 / nullif(duration_s, 0) / 1e9, peak, v.flows, large_flows, before_share,
                   retransmitted, accuracy]::DOUBLE[]) AS value
    FROM members
    JOIN total_volume AS v USING (run_id)
    LEFT JOIN (SELECT run_id, large_flows FROM flow_counts()) USING (run_id)
    LEFT JOIN spans USING (run_id)
    LEFT JOIN peaks USING (run_id)
    LEFT JOIN before_training USING (run_id)
    LEFT JOIN accuracies USING (run_id)
    LEFT JOIN step_means USING (run_id)
), step_values AS (
    SELECT side, run_id, 'steps' AS replicate, unnest(range(6, 9)) AS place,
           unnest([step_wire, step_payload, step_ms]::DOUBLE[]) AS value
    FROM members
    JOIN run_steps USING (run_id)
), replicates AS (
    SELECT side, place, replicate, count(value) AS n, avg(value) AS mean, coalesce(var_samp(value), 0) / count(value) AS error
    FROM (FROM run_values UNION ALL FROM step_values)
    WHERE value IS NOT NULL
    GROUP BY ALL
), sides AS (
    SELECT place, replicate, coalesce(max(n) FILTER (side = 'a'), 0) AS a_n, coalesce(max(n) FILTER (side = 'b'), 0) AS b_n,
           max(mean) FILTER (side = 'a') AS a_mean, max(mean) FILTER (side = 'b') AS b_mean,
           max(error) FILTER (side = 'a') AS a_error, max(error) FILTER (side = 'b') AS b_error
    FROM replicates
    GROUP BY ALL
), preferred AS (  -- several runs before several steps before what cannot vary
    SELECT *, least(a_n, b_n) >= 2 AS varies
    FROM sides
    QUALIFY row_number() OVER (PARTITION BY place ORDER BY varies DESC, replicate) = 1
), welch AS (
    SELECT *, a_error + b_error AS error,
           least(greatest(floor(error ** 2 / nullif(a_error ** 2 / (a_n - 1) + b_error ** 2 / (b_n - 1), 0)), 1), 1000)::BIGINT
               AS df
    FROM preferred
    WHERE varies
), intervals AS (
    SELECT place, CASE WHEN error = 0 THEN 0 ELSE t * sqrt(error) END AS half_width
    FROM welch
    LEFT JOIN student_t USING (df)
)
SELECT place, figure, unit,
       CASE WHEN varies THEN replicate ELSE 'nothing' END AS replicated_by,
       coalesce(a_n, 0) AS a_n, a_mean, coalesce(b_n, 0) AS b_n, b_mean,
       b_mean - a_mean AS difference,
       b_mean - a_mean - half_width AS difference_low,
       b_mean - a_mean + half_width AS difference_high,
       b_mean / nullif(a_mean, 0) AS ratio
FROM figures
LEFT JOIN preferred USING (place)
LEFT JOIN intervals USING (place)
WHERE EXISTS (FROM members)
ORDER BY place
