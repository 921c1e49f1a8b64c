-- question: How fast is the flow that carries a run's gradients, on average and at its peak?
-- subject: throughput
-- row: a run
-- inputs: runs, flows, gradient_payload, flow_windows, throughput_samples, host_names, within_run, framework_settings
-- answer: src_host, dst_host, stretch, gbit_per_s
-- param: sender VARCHAR = NULL; only flows from this host, by its name in figures (W1) or its address; NULL: any
-- param: receiver VARCHAR = NULL; only flows to this host; NULL: any
-- param: peak_window_ms DOUBLE > 0 = 10; length of the windows whose busiest is the peak, ms
-- param: batches BIGINT > 0 = 1000; most samples (the method paper: 30)
-- param: batch_ms DOUBLE > 0 = NULL; length of a sample, ms; NULL: as in total_throughput (the method paper: 1000)
-- param: from_ms DOUBLE = NULL; start of the stretch that counts, ms since the run's first packet; NULL: the training's start (the method paper: 90000)
-- param: until_ms DOUBLE = NULL; end of the stretch; NULL: the training's end, with the method paper that of the capture
-- param: method VARCHAR = student; student: 95% interval within the run (within_run); paper: as the authors' notebook computes it
-- figure: zerwas table II
-- column: run_id from flows
-- column: framework_setting
-- column: model
-- column: computation; how the interval was computed, or why there is none
-- column: src_host; sender, by its name in figures; null without a gradient flow
-- column: src_port; sender's port; null with the method paper, which takes a pair of hosts
-- column: dst_host; receiver, by its name in figures
-- column: dst_port; receiver's port; null with the method paper
-- column: stretch
-- column: begin_ms ms; start of the first sample since the run's first base window
-- column: end_ms ms; end of the last sample since then
-- column: sample_ms ms; length of a sample
-- column: samples; number of samples
-- column: gbit_per_s Gbit/s; mean throughput over the stretch, also behind the last whole sample, as in total_throughput; with the method paper that of the samples; wire bytes
-- column: half_width_gbit_per_s Gbit/s; half width of the 95% interval within this run by the method; null where computation says why
-- column: low_gbit_per_s Gbit/s; lower end of the interval
-- column: high_gbit_per_s Gbit/s; its upper end
-- column: corrected_half_width_gbit_per_s Gbit/s; with the method paper 1.96 s / sqrt(samples), else half_width_gbit_per_s
-- column: std_gbit_per_s Gbit/s; standard deviation s of the samples, by n - 1; with the method paper by n
-- column: lag1_autocorrelation ratio; correlation of neighbouring samples, -1 to 1
-- column: peak_sample_ms ms; length of the windows of the peak
-- column: peak_gbit_per_s Gbit/s; throughput of the busiest of them in the stretch
-- column: link_share share; gbit_per_s over the link's declared rate (bandwidth_mbit); null without one
-- column: peak_link_share share; peak_gbit_per_s over that rate
-- column: most_link_share share; most that the link passes in peak_sample_ms: 1, and burst_bytes at that rate; null without burst_bytes
-- The gradient flow is the five-tuple with the most payload inside steps (gradient_payload). Stretch and samples are
-- those of total_throughput, and so is when there is no interval.
-- The paper's notebook takes all traffic of one pair of hosts, 30 batches of 100 windows of 10 ms from 90 s on, and the
-- mean +- 1.96 s / 10 with s by n. The divisor should have been the root of 30. The method paper repeats that.
WITH flow_payload AS (
    SELECT f.run_id, f.flow_id, f.src_ip, f.dst_ip, training_payload_bytes,
           -- the method paper takes a pair of hosts
           CASE WHEN $method <> 'paper'
                THEN {'protocol': protocol, 'src_port': src_port, 'dst_port': dst_port, 'tunnel': encapsulation_id,
                      'qp': roce_dest_qp}
           END AS ports
    FROM flows AS f
    JOIN gradient_payload USING (run_id, flow_id)
), candidates AS (
    SELECT p.run_id, src_ip, dst_ip, ports, min(flow_id) AS first_flow_id,
           coalesce(any_value(src.host), src_ip) AS src_host, coalesce(any_value(dst.host), dst_ip) AS dst_host,
           sum(training_payload_bytes) AS payload
    FROM flow_payload AS p
    LEFT JOIN host_names AS src ON src.run_id = p.run_id AND src.host_ip = src_ip
    LEFT JOIN host_names AS dst ON dst.run_id = p.run_id AND dst.host_ip = dst_ip
    GROUP BY p.run_id, src_ip, dst_ip, ports
), heaviest AS (
    SELECT *
    FROM candidates
    WHERE payload > 0
      AND ($sender IS NULL OR $sender IN (src_ip, src_host))
      AND ($receiver IS NULL OR $receiver IN (dst_ip, dst_host))
    QUALIFY row_number() OVER (PARTITION BY run_id ORDER BY payload DESC, first_flow_id) = 1
), members AS (
    SELECT p.run_id, p.flow_id
    FROM flow_payload AS p
    JOIN heaviest AS h ON h.run_id = p.run_id AND h.src_ip = p.src_ip AND h.dst_ip = p.dst_ip
                      AND h.ports IS NOT DISTINCT FROM p.ports
), lengths AS (
    SELECT *,
           greatest(($peak_window_ms * 1e6 / base_ns)::BIGINT, 1) * base_ns AS peak_ns,
           -- the published stretch ends with its last batch
           CASE WHEN $method = 'paper' THEN stretch_begin_ns + sample_count * length_ns ELSE stretch_end_ns END AS peaks_end_ns
    FROM throughput_samples(batches := CASE WHEN $method = 'paper' THEN least($batches, 30) ELSE $batches END,
                            batch_ms := coalesce($batch_ms, CASE WHEN $method = 'paper' THEN 1000 END),
                            from_ms := coalesce($from_ms, CASE WHEN $method = 'paper' THEN 90000 END),
                            -- after any end: that of the capture
                            until_ms := coalesce($until_ms, CASE WHEN $method = 'paper' THEN 1e10 END))
), member_lists AS (  -- a row a run, so that DuckDB builds its join on this side and not on the windows
    SELECT run_id, list(flow_id) AS flow_ids
    FROM members
    GROUP BY run_id
), chosen AS MATERIALIZED (
    SELECT run_id, flow_ids, stretch_begin_ns, peaks_end_ns, peak_ns, length_ns
    FROM lengths
    JOIN member_lists USING (run_id)
), cells AS (  -- both divisions at once, so that the windows are read once
    SELECT w.run_id, peak_ns, (window_start_ns - stretch_begin_ns) // peak_ns AS peak_number,
           (window_start_ns - stretch_begin_ns) // length_ns AS number, sum(wire_bytes) AS bytes
    FROM flow_windows AS w
    JOIN chosen USING (run_id)
    WHERE list_contains(flow_ids, flow_id) AND window_start_ns - stretch_begin_ns >= 0 AND window_start_ns - peaks_end_ns < 0
    GROUP BY ALL
), peak_windows AS (
    SELECT run_id, peak_ns, sum(bytes) AS bytes
    FROM cells
    GROUP BY run_id, peak_ns, peak_number
), peaks AS (
    SELECT run_id, max(bytes * 8 / peak_ns) AS peak_rate
    FROM peak_windows
    GROUP BY run_id
), stretch_rates AS (
    SELECT run_id, coalesce(sum(bytes), 0) * 8 / nullif(any_value(stretch_end_ns - begin_ns), 0) AS stretch_rate
    FROM lengths
    LEFT JOIN cells USING (run_id)
    GROUP BY run_id
), volumes AS (
    SELECT run_id, number, sum(bytes) AS bytes
    FROM cells
    GROUP BY ALL
), numbered AS (
    SELECT run_id, length_ns, unnest(range(sample_count)) AS number
    FROM lengths
    JOIN heaviest USING (run_id)
), sample_rates AS (
    SELECT run_id, number, coalesce(bytes, 0) * 8 / length_ns AS rate
    FROM numbered
    LEFT JOIN volumes USING (run_id, number)
), run_series AS (
    SELECT run_id, list(rate ORDER BY number) AS series, stddev_pop(rate) AS paper_deviation
    FROM sample_rates
    GROUP BY run_id
), intervals AS (
    SELECT run_id, samples AS sample_size, CASE WHEN $method = 'paper' THEN mean ELSE stretch_rate END AS mean_rate, lag1_autocorrelation,
           coalesce(length_problem, problem) AS no_interval,
           CASE WHEN samples < 2 THEN NULL WHEN $method = 'paper' THEN paper_deviation ELSE deviation END AS spread,
           CASE WHEN $method = 'paper' THEN 1.96 * spread / sqrt(samples) WHEN no_interval IS NULL THEN half_width END AS corrected,
           CASE WHEN $method = 'paper' THEN 1.96 * spread / 10 ELSE corrected END AS half
    FROM (
        SELECT run_id, paper_deviation, length_problem, stretch_rate, w.*
        FROM run_series
        JOIN stretch_rates USING (run_id)
        JOIN lengths USING (run_id),
             within_run(series := series) AS w
    )
)
SELECT r.run_id, framework_setting, model,
       CASE $method
            WHEN 'student' THEN coalesce(sample_size || ' samples, ' || coalesce('no interval: ' || no_interval, 'within this run'),
                                     'no sample in the stretch')
            WHEN 'paper' THEN coalesce('as published: ' || sample_size || ' batch means, 1.96 s / 10 with s by n; corrected: '
                                       || '1.96 s / sqrt(' || sample_size || ')', 'no batch in the stretch')
            ELSE error('method is student or paper, not ' || $method)
       END AS computation,
       src_host, ports.src_port AS src_port, dst_host, ports.dst_port AS dst_port,
       stretch,
       (stretch_begin_ns - first_ns) / 1e6 AS begin_ms,
       (stretch_begin_ns + sample_count * length_ns - first_ns) / 1e6 AS end_ms,
       length_ns / 1e6 AS sample_ms,
       coalesce(sample_size, 0) AS samples,
       mean_rate AS gbit_per_s,
       half AS half_width_gbit_per_s,
       mean_rate - half AS low_gbit_per_s,
       mean_rate + half AS high_gbit_per_s,
       corrected AS corrected_half_width_gbit_per_s,
       spread AS std_gbit_per_s,
       lag1_autocorrelation,
       peak_ns / 1e6 AS peak_sample_ms,
       peak_rate AS peak_gbit_per_s,
       mean_rate * 1e3 / bandwidth_mbit AS link_share,
       peak_rate * 1e3 / bandwidth_mbit AS peak_link_share,
       1 + burst_bytes * 8e3 / (bandwidth_mbit * peak_ns) AS most_link_share
FROM runs AS r
JOIN framework_settings USING (run_id)
LEFT JOIN lengths USING (run_id)
LEFT JOIN heaviest USING (run_id)
LEFT JOIN intervals USING (run_id)
LEFT JOIN peaks USING (run_id)
ORDER BY r.run_id
