-- question: How high is the throughput over all links together, of a run or of repeats of it, and how certain is it?
-- subject: throughput
-- row: a run; with pool_by, a group of runs
-- inputs: runs, flows, flow_windows, throughput_samples, within_run, student_t, framework_settings, run_settings
-- answer: framework_setting, stretch, gbit_per_s
-- param: pool_by VARCHAR = NULL; settings of run_settings, separated by commas: runs that are equal in them are pooled; NULL: each run alone
-- param: batches BIGINT > 0 = 1000; most samples of a run (the method paper takes all windows of its stretch)
-- param: batch_ms DOUBLE > 0 = NULL; length of a sample, ms; NULL: as in throughput_samples, a step or more (the method paper: 1000)
-- param: from_ms DOUBLE = NULL; start of the stretch that counts, ms since the run's first packet; NULL: the training's start (the method paper: 200000)
-- param: until_ms DOUBLE = NULL; end of the stretch; NULL: the training's end (the method paper: 300000)
-- param: method VARCHAR = student; student: 95% interval within the run (within_run), with pool_by over the means of runs; paper: as the authors' notebook computes it
-- figure: zerwas table I
-- column: run_id; run; null with pool_by
-- column: pooled_by; settings in which the runs of the row are equal, with their values; null without pool_by
-- column: pooled; other settings in which they differ, with their values; null where there are none
-- column: runs runs; runs of the row
-- column: framework_setting; framework and backend, and whether it averages pairs (framework_settings); null where the runs differ in it
-- column: model; name of the trained model; null where the runs differ in it
-- column: computation; how the interval was computed, or why there is none
-- column: stretch; time examined (throughput_samples); null where the runs differ in it, as the next three
-- column: begin_ms ms; start of the first sample since the run's first base window
-- column: end_ms ms; end of the last sample since then
-- column: sample_ms ms; length of a sample
-- column: samples; number of samples of all runs of the row
-- column: gbit_per_s Gbit/s; mean throughput: wire bytes of the base windows that begin in the stretch, over its length, as in compare and inferred_throughput; with the method paper the mean of the samples; of several runs the mean of their means
-- column: interval_of; what the interval is of: this run (where the mean of a longer run would be), runs (where that of further runs would be), or windows (the method paper); null without one
-- column: half_width_gbit_per_s Gbit/s; half width of the 95% interval; null where computation says why
-- column: low_gbit_per_s Gbit/s; lower end of the interval
-- column: high_gbit_per_s Gbit/s; its upper end
-- column: std_gbit_per_s Gbit/s; standard deviation s by n - 1, of the samples, or of the means of runs where interval_of is runs
-- column: lag1_autocorrelation ratio; correlation of neighbouring samples, -1 to 1; null for several runs
-- column: links hosts; hosts of the run that send, each by a link of its own; null where the runs differ in it
-- column: link_share share; gbit_per_s over what these links pass together at their declared rate (bandwidth_mbit); of several runs the mean; null where a rate is unknown
-- column: peak_link_share share; throughput of the busiest sample over that rate; of several runs the largest
-- column: most_link_share share; most that the links pass in a sample: 1, and burst_bytes of each at that rate; of several runs the largest; null where one is unknown
-- A packet counts once, at its sender, so that what counts has passed as many links as hosts send.
-- The mean is of the whole stretch, also behind the last whole sample; the interval's width, deviation and autocorrelation are of samples.
-- A sample in which nothing is sent has throughput 0 and counts. There is no interval within the run with fewer than 200
-- samples, or where they are shorter than a step. Steps of one run say nothing about another run of the setting: that takes
-- runs, at least three (pool_by).
-- The paper's table I describes 30 batch means over 10 runs of a framework and model: pool_by = framework_setting,model, where
-- each run counts as one. The paper's notebook takes the throughput in windows of 1 s from 200 s to 300 s of one run, 100
-- of them, and the mean +- 1.96 s / 10, where 10 is the root of 100 and nothing is batched. The method paper does that,
-- with the root of the number of windows that the run has there.
WITH thresholds AS (
    SELECT 3 AS least_runs
), wanted AS (
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
), lengths AS (
    FROM throughput_samples(batches := CASE WHEN $method <> 'paper' THEN $batches END,
                            batch_ms := coalesce($batch_ms, CASE WHEN $method = 'paper' THEN 1000 END),
                            from_ms := coalesce($from_ms, CASE WHEN $method = 'paper' THEN 200000 END),
                            until_ms := coalesce($until_ms, CASE WHEN $method = 'paper' THEN 300000 END))
), length_list AS (  -- one row, so that DuckDB expects few rows of it and builds the join on them, not on the windows
    SELECT list({'run_id': run_id, 'stretch_begin_ns': stretch_begin_ns, 'stretch_end_ns': stretch_end_ns, 'length_ns': length_ns})
           AS rows
    FROM lengths
), volumes AS (
    SELECT run_id, (window_start_ns - stretch_begin_ns) // length_ns AS number, sum(wire_bytes) AS bytes
    FROM flow_windows
    JOIN (SELECT unnest(rows, recursive := true) FROM length_list) USING (run_id)
    WHERE window_start_ns - stretch_begin_ns >= 0 AND window_start_ns - stretch_end_ns < 0
    GROUP BY ALL
), stretch_rates AS (
    SELECT run_id, coalesce(sum(bytes), 0) * 8 / nullif(any_value(stretch_end_ns - begin_ns), 0) AS stretch_rate
    FROM lengths
    LEFT JOIN volumes USING (run_id)
    GROUP BY run_id
), numbered AS (
    SELECT run_id, length_ns, unnest(range(sample_count)) AS number
    FROM lengths
), sample_rates AS (
    SELECT run_id, member_of, number, coalesce(bytes, 0) * 8 / length_ns AS rate
    FROM numbered
    JOIN members USING (run_id)
    LEFT JOIN volumes USING (run_id, number)
), run_series AS (
    SELECT run_id, list(rate ORDER BY number) AS series
    FROM sample_rates
    GROUP BY run_id
), within AS (
    SELECT run_id, CASE WHEN $method = 'paper' THEN w.mean ELSE stretch_rate END AS rate, deviation, lag1_autocorrelation, half_width,
           w.samples || CASE WHEN coalesce(length_problem, problem) IS NULL THEN ' samples, within this run'
                             ELSE ' samples, no interval: ' || coalesce(length_problem, problem) END AS computation,
           coalesce(length_problem, problem) IS NULL AS has_interval
    FROM run_series
    JOIN lengths USING (run_id)
    JOIN stretch_rates USING (run_id),
         within_run(series := series) AS w
), links AS (  -- a packet counts at its sender, and leaves it by the sender's link
    SELECT run_id, count(DISTINCT src_ip) AS links, any_value(bandwidth_mbit) * links / 1e3 AS link_rate,
           any_value(burst_bytes) * links AS burst_bytes
    FROM flows
    JOIN runs USING (run_id)
    GROUP BY run_id
), run_shares AS (
    SELECT run_id, any_value(links) AS links, any_value(w.rate) / any_value(link_rate) AS share, max(s.rate) / any_value(link_rate) AS peak_share,
           1 + any_value(burst_bytes) * 8 / (any_value(link_rate) * any_value(length_ns)) AS most_share
    FROM sample_rates AS s
    JOIN within AS w USING (run_id)
    JOIN lengths USING (run_id)
    JOIN links USING (run_id)
    GROUP BY run_id
), shares AS (  -- of runs that have samples
    SELECT member_of, CASE WHEN count(DISTINCT links) = 1 THEN any_value(links) END AS links,
           CASE WHEN count(share) = count(*) THEN avg(share) END AS share,
           CASE WHEN count(share) = count(*) THEN max(peak_share) END AS peak_share,
           CASE WHEN count(most_share) = count(*) THEN max(most_share) END AS most_share
    FROM run_shares
    JOIN members USING (run_id)
    GROUP BY member_of
), means AS (
    SELECT member_of, avg(rate) AS mean_rate, count(rate) AS timed,
           CASE WHEN count(rate) > 1 THEN stddev_samp(rate) END AS run_deviation
    FROM members
    LEFT JOIN within USING (run_id)
    GROUP BY member_of
), all_windows AS (
    SELECT member_of, count(*) AS sample_size, avg(rate) AS mean_rate,
           CASE WHEN count(*) > 1 THEN stddev_samp(rate) END AS deviation
    FROM sample_rates
    GROUP BY member_of
), intervals AS (
    SELECT member_of, m.sample_size, 'windows' AS interval_of, m.mean_rate, m.deviation, lag1_autocorrelation AS lag1,
           1.96 * m.deviation / sqrt(m.sample_size) AS half_width,
           'as published: ' || m.sample_size || ' windows, not batched, 1.96 s / sqrt(' || m.sample_size || ')' AS computation
    FROM all_windows AS m
    LEFT JOIN within AS w ON run_id = member_of
    WHERE $method = 'paper'
    UNION ALL
    SELECT member_of, sample_size, CASE WHEN has_interval THEN 'this run' END, rate, w.deviation, lag1_autocorrelation,
           CASE WHEN has_interval THEN half_width END, computation
    FROM within AS w
    JOIN all_windows ON member_of = run_id
    WHERE $method = 'student' AND $pool_by IS NULL
    UNION ALL
    SELECT member_of, sample_size, CASE WHEN timed >= least_runs THEN 'runs' END, m.mean_rate, run_deviation, NULL,
           CASE WHEN timed >= least_runs THEN t * run_deviation / sqrt(timed) END,
           timed || CASE WHEN timed = 1 THEN ' run' ELSE ' runs' END
               || CASE WHEN timed >= least_runs THEN ', Student''s t on their means'
                       ELSE ', no interval: that takes at least ' || least_runs || ' runs' END
    FROM means AS m
    CROSS JOIN thresholds
    JOIN all_windows USING (member_of)
    LEFT JOIN student_t ON df = least(timed - 1, 1000)
    WHERE $method = 'student' AND $pool_by IS NOT NULL
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
       CASE WHEN $method IN ('student', 'paper') THEN coalesce(computation, 'no sample in the stretch')
            ELSE error('method is student or paper, not ' || $method)
       END AS computation,
       stretch, begin_ns / 1e6 AS begin_ms, end_ns / 1e6 AS end_ms, length_ns / 1e6 AS sample_ms,
       coalesce(sample_size, 0) AS samples,
       mean_rate AS gbit_per_s,
       interval_of,
       half_width AS half_width_gbit_per_s,
       mean_rate - half_width AS low_gbit_per_s,
       mean_rate + half_width AS high_gbit_per_s,
       deviation AS std_gbit_per_s,
       lag1 AS lag1_autocorrelation,
       links, share AS link_share, peak_share AS peak_link_share, most_share AS most_link_share
FROM described
LEFT JOIN pooled USING (member_of)
LEFT JOIN intervals USING (member_of)
LEFT JOIN shares USING (member_of)
ORDER BY run_id, pooled_by
