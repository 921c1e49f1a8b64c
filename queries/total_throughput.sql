-- question: How high is the throughput over all links together, of a run or of repeats of it, and how certain is it?
-- row: a run; with pool_by, a group of runs
-- inputs: runs, flow_windows, run_spans, student_t, framework_settings, run_settings
-- param: pool_by VARCHAR = NULL; settings of run_settings, separated by commas: runs that are equal in them are pooled; NULL: each run alone
-- param: batches BIGINT > 0 = 30; most batches of a run, or of a group of runs together (the method paper takes all windows of its stretch)
-- param: batch_ms DOUBLE > 0 = NULL; length of a batch, ms; NULL: the stretch in `batches` parts (the method paper: 1000)
-- param: from_ms DOUBLE = NULL; start of the stretch that counts, ms since the run's first packet; NULL: the training's start (the method paper: 200000)
-- param: until_ms DOUBLE = NULL; end of the stretch; NULL: the training's end (the method paper: 300000)
-- param: method VARCHAR = student; student: 95% interval by Student's t on the batch means; paper: as the authors' notebook computes it
-- figure: zerwas table I
-- column: run_id; run; null with pool_by
-- column: pooled_by; settings in which the runs of the row are equal, with their values; null without pool_by
-- column: pooled; other settings in which they differ, with their values; null where there are none
-- column: runs runs; runs of the row
-- column: framework_setting; framework and backend, and whether it averages pairs (framework_settings); null where the runs differ in it
-- column: model; name of the trained model; null where the runs differ in it
-- column: computation; how the interval was computed, or why there is none
-- column: stretch; time examined: training, capture (no log covers the traffic) or chosen (by parameters or the method paper); null where the runs differ in it, as the next three
-- column: begin_ms ms; start of the first batch since the run's first base window
-- column: end_ms ms; end of the last batch since then
-- column: sample_ms ms; length of a batch
-- column: samples batches; number of batches
-- column: gbit_per_s Gbit/s; mean throughput of the batches, wire bytes
-- column: half_width_gbit_per_s Gbit/s; half width of the 95% interval; null with fewer than two batches
-- column: low_gbit_per_s Gbit/s; lower end of the interval
-- column: high_gbit_per_s Gbit/s; its upper end
-- column: run_half_width_gbit_per_s Gbit/s; half width of the 95% interval of Student's t on the means of the runs; null with fewer than two runs
-- column: std_gbit_per_s Gbit/s; standard deviation s of the batch means, by n - 1
-- column: lag1_autocorrelation ratio; correlation of neighbouring batch means, -1 to 1
-- The stretch is the training, or the whole capture where no log covers the traffic (run_spans), cut to the capture in
-- any case. A batch is a whole number of base windows; one in which nothing is sent has throughput 0 and counts. The
-- interval is sound where batch means are hardly correlated: with a lag1_autocorrelation far from 0 the batches are too
-- short (a few steps each, or less), and the interval too narrow.
-- The paper's table I describes 30 batch means over 10 runs of a framework and model: pool_by = framework_setting,model, with
-- three batches of each run. Batches of a run may be alike where runs differ; then run_half_width_gbit_per_s, which takes
-- each run as one sample, is the interval that holds. The paper's notebook takes the throughput in windows of 1 s from 200 s to
-- 300 s of one run, 100 of them, and the mean +- 1.96 s / 10, where 10 is the root of 100 and nothing is batched. The
-- method paper does that, with the root of the number of windows that the run has there.
WITH wanted AS (
    SELECT CASE WHEN $pool_by IS NOT NULL
                THEN list_transform(string_split($pool_by, ','), lambda name: trim(name)) END AS names
), unknown_names AS (
    SELECT name
    FROM (SELECT unnest(names) AS name FROM wanted)
    WHERE name NOT IN (SELECT setting FROM run_settings) AND EXISTS (FROM run_settings)
), grouped AS (
    SELECT run_id, NULL AS pooled_by
    FROM runs
    WHERE $pool_by IS NULL
    UNION ALL
    SELECT run_id, string_agg(setting || ' ' || value, ', ' ORDER BY list_position(names, setting))
    FROM run_settings
    CROSS JOIN wanted
    WHERE CASE WHEN EXISTS (FROM unknown_names)
               THEN error('pool_by has no setting ' || (SELECT min(name) FROM unknown_names) || '; it has '
                          || (SELECT string_agg(DISTINCT setting, ', ' ORDER BY setting) FROM run_settings))
               ELSE list_contains(names, setting)
          END
    GROUP BY run_id
), members AS (
    SELECT run_id, pooled_by, coalesce(pooled_by, run_id) AS member_of, count(*) OVER (PARTITION BY member_of) AS runs
    FROM grouped
), differing AS (
    SELECT member_of, setting, string_agg(DISTINCT value, ', ' ORDER BY value) AS found
    FROM run_settings
    JOIN members USING (run_id)
    GROUP BY member_of, setting
    HAVING count(DISTINCT value) > 1
), pooled AS (
    SELECT member_of, string_agg(setting || ' ' || found, '; ' ORDER BY setting) AS pooled
    FROM differing
    GROUP BY member_of
), requested AS (
    SELECT run_id, base_ns, first_ns, last_ns, span_source,
           $method = 'paper' AS as_paper,
           CASE WHEN as_paper THEN coalesce($batch_ms, 1000) ELSE $batch_ms END AS requested_ms,
           coalesce(first_ns + ($from_ms * 1e6)::BIGINT, CASE WHEN as_paper THEN first_ns + 200_000_000_000 END,
                    begin_ns) AS requested_begin_ns,
           coalesce(first_ns + ($until_ms * 1e6)::BIGINT, CASE WHEN as_paper THEN first_ns + 300_000_000_000 END,
                    end_ns) AS requested_end_ns
    FROM run_spans
), stretches AS (  -- whole base windows
    SELECT run_id, base_ns, first_ns, as_paper, requested_ms,
           first_ns + (greatest(requested_begin_ns - first_ns, 0) + base_ns - 1) // base_ns * base_ns AS stretch_begin_ns,
           least(requested_end_ns, last_ns) AS stretch_end_ns,
           CASE WHEN as_paper OR $from_ms IS NOT NULL OR $until_ms IS NOT NULL THEN 'chosen' ELSE span_source END AS stretch
    FROM requested
), lengths AS (
    SELECT *,
           greatest($batches // runs, 1) AS most_batches,
           greatest(CASE WHEN requested_ms IS NULL THEN (stretch_end_ns - stretch_begin_ns) // most_batches // base_ns
                         ELSE (requested_ms * 1e6 / base_ns)::BIGINT END, 1) * base_ns AS length_ns,
           (stretch_end_ns - stretch_begin_ns) // length_ns AS whole_batches,
           greatest(least(whole_batches, CASE WHEN NOT as_paper THEN most_batches END), 0) AS sample_count
    FROM stretches
    JOIN members USING (run_id)
), length_list AS (  -- one row, so that DuckDB expects few rows of it and builds the join on them, not on the windows
    SELECT list({'run_id': run_id, 'stretch_begin_ns': stretch_begin_ns, 'length_ns': length_ns, 'sample_count': sample_count})
           AS rows
    FROM lengths
), volumes AS (
    SELECT run_id, (window_start_ns - stretch_begin_ns) // length_ns AS number, sum(wire_bytes) AS bytes
    FROM flow_windows
    JOIN (SELECT unnest(rows, recursive := true) FROM length_list) USING (run_id)
    WHERE window_start_ns - stretch_begin_ns >= 0 AND window_start_ns - stretch_begin_ns - sample_count * length_ns < 0
    GROUP BY ALL
), numbered AS (
    SELECT run_id, length_ns, unnest(range(sample_count)) AS number
    FROM lengths
), batch_means AS (
    SELECT run_id, member_of, number, coalesce(bytes, 0) * 8 / length_ns AS rate
    FROM numbered
    JOIN members USING (run_id)
    LEFT JOIN volumes USING (run_id, number)
), moments AS (
    SELECT member_of, count(*) AS sample_size, avg(rate) AS mean_rate,
           CASE WHEN count(*) > 1 THEN stddev_samp(rate) END AS deviation
    FROM batch_means
    GROUP BY member_of
), neighbours AS (
    SELECT member_of, rate - mean_rate AS off, lag(rate - mean_rate) OVER (PARTITION BY run_id ORDER BY number) AS off_before
    FROM batch_means
    JOIN moments USING (member_of)
), correlations AS (
    SELECT member_of, sum(off * off_before) / nullif(sum(off * off), 0) AS lag1
    FROM neighbours
    GROUP BY member_of
), run_means AS (
    SELECT member_of, run_id, avg(rate) AS rate
    FROM batch_means
    GROUP BY member_of, run_id
), between_runs AS (
    SELECT member_of, count(*) AS runs, CASE WHEN count(*) > 1 THEN stddev_samp(rate) / sqrt(count(*)) END AS error
    FROM run_means
    GROUP BY member_of
), run_intervals AS (
    SELECT member_of, t * error AS half_width
    FROM between_runs
    JOIN student_t ON df = least(runs - 1, 1000)
), intervals AS (
    SELECT member_of, sample_size, mean_rate, deviation,
           CASE WHEN $method = 'paper' THEN 1.96 ELSE t END * deviation / sqrt(sample_size) AS half_width
    FROM moments
    LEFT JOIN student_t ON df = least(sample_size - 1, 1000)
), described AS (
    SELECT member_of, any_value(pooled_by) AS pooled_by, CASE WHEN $pool_by IS NULL THEN any_value(run_id) END AS run_id,
           count(*) AS runs,
           CASE WHEN count(DISTINCT framework_setting) = 1 THEN any_value(framework_setting) END AS framework_setting,
           CASE WHEN count(DISTINCT coalesce(model, '')) = 1 THEN any_value(model) END AS model,
           CASE WHEN count(DISTINCT stretch) = 1 THEN any_value(stretch) END AS stretch,
           CASE WHEN count(DISTINCT stretch_begin_ns - first_ns) = 1 THEN any_value(stretch_begin_ns - first_ns) END AS begin_ns,
           CASE WHEN count(DISTINCT stretch_begin_ns + sample_count * length_ns - first_ns) = 1
                THEN any_value(stretch_begin_ns + sample_count * length_ns - first_ns) END AS end_ns,
           CASE WHEN count(DISTINCT length_ns) = 1 THEN any_value(length_ns) END AS length_ns
    FROM runs AS r
    JOIN framework_settings USING (run_id)
    JOIN members USING (run_id)
    LEFT JOIN (SELECT run_id, stretch, stretch_begin_ns, first_ns, sample_count, length_ns FROM lengths) USING (run_id)
    GROUP BY member_of
)
SELECT run_id, pooled_by, pooled, runs, framework_setting, model,
       CASE WHEN $method = 'student'
            THEN coalesce(sample_size || ' batch means' || CASE WHEN runs > 1 THEN ' of ' || runs || ' runs' ELSE '' END
                                         || ', Student''s t', 'no batch in the stretch')
            WHEN $method = 'paper' THEN coalesce('as published: ' || sample_size || ' windows, not batched, 1.96 s / sqrt('
                                       || sample_size || ')', 'no window in the stretch')
            ELSE error('method is student or paper, not ' || $method)
       END AS computation,
       stretch, begin_ns / 1e6 AS begin_ms, end_ns / 1e6 AS end_ms, length_ns / 1e6 AS sample_ms,
       coalesce(sample_size, 0) AS samples,
       mean_rate AS gbit_per_s,
       i.half_width AS half_width_gbit_per_s,
       mean_rate - i.half_width AS low_gbit_per_s,
       mean_rate + i.half_width AS high_gbit_per_s,
       b.half_width AS run_half_width_gbit_per_s,
       deviation AS std_gbit_per_s,
       lag1 AS lag1_autocorrelation
FROM described
LEFT JOIN pooled USING (member_of)
LEFT JOIN intervals AS i USING (member_of)
LEFT JOIN run_intervals AS b USING (member_of)
LEFT JOIN correlations USING (member_of)
ORDER BY run_id, pooled_by
