-- question: How fast is the flow that carries a run's gradients, on average and at its peak?
-- row: a run
-- inputs: runs, flows, gradient_payload, flow_windows, run_spans, host_names, student_t, framework_settings
-- param: sender VARCHAR = NULL; only flows from this host, by its name in figures (W1) or its address; NULL: any
-- param: receiver VARCHAR = NULL; only flows to this host; NULL: any
-- param: peak_window_ms DOUBLE > 0 = 10; length of the windows whose busiest is the peak, ms
-- param: batches BIGINT > 0 = 30; most batches
-- param: batch_ms DOUBLE > 0 = NULL; length of a batch, ms; NULL: the stretch in `batches` parts (the method paper: 1000)
-- param: from_ms DOUBLE = NULL; start of the stretch that counts, ms since the run's first packet; NULL: the training's start (the method paper: 90000)
-- param: until_ms DOUBLE = NULL; end of the stretch; NULL: the training's end, with the method paper that of the capture
-- param: method VARCHAR = student; student: 95% interval by Student's t on the batch means; paper: as the authors' notebook computes it
-- figure: zerwas table II
-- column: run_id from flows
-- column: framework_setting
-- column: model
-- column: computation; how the interval was computed, or why there is none
-- column: src_host; sender, by its name in figures; null without a gradient flow
-- column: src_port; sender's port; null with the method paper, which takes a pair of hosts
-- column: dst_host; receiver, by its name in figures
-- column: dst_port; receiver's port; null with the method paper
-- column: stretch; time examined: training, capture (no log covers the traffic) or chosen (by parameters or the method paper)
-- column: begin_ms ms; start of the first batch since the run's first base window
-- column: end_ms ms; end of the last batch since then
-- column: sample_ms ms; length of a batch
-- column: samples batches; number of batches
-- column: gbit_per_s Gbit/s; mean throughput of the batches, wire bytes
-- column: half_width_gbit_per_s Gbit/s; half width of the 95% interval by the method; null with fewer than two batches
-- column: low_gbit_per_s Gbit/s; lower end of the interval
-- column: high_gbit_per_s Gbit/s; its upper end
-- column: corrected_half_width_gbit_per_s Gbit/s; with the method paper 1.96 s / sqrt(samples), else half_width_gbit_per_s
-- column: std_gbit_per_s Gbit/s; standard deviation s of the batch means, by n - 1; with the method paper by n
-- column: lag1_autocorrelation ratio; correlation of neighbouring batch means, -1 to 1
-- column: peak_sample_ms ms; length of the windows of the peak
-- column: peak_gbit_per_s Gbit/s; throughput of the busiest of them in the stretch
-- column: link_share share; gbit_per_s over the link's declared rate (bandwidth_mbit); null without one
-- column: peak_link_share share; peak_gbit_per_s over that rate
-- column: most_link_share share; most that the link passes in peak_sample_ms: 1, and burst_bytes at that rate; null without burst_bytes
-- The gradient flow is the five-tuple with the most payload inside steps (gradient_payload). Stretch and batches are
-- those of total_throughput.
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
), requested AS (
    SELECT run_id, base_ns, first_ns, last_ns, span_source,
           $method = 'paper' AS as_paper,
           CASE WHEN as_paper THEN coalesce($batch_ms, 1000) ELSE $batch_ms END AS requested_ms,
           coalesce(first_ns + ($from_ms * 1e6)::BIGINT, CASE WHEN as_paper THEN first_ns + 90_000_000_000 END,
                    begin_ns) AS requested_begin_ns,
           coalesce(first_ns + ($until_ms * 1e6)::BIGINT, CASE WHEN as_paper THEN last_ns END, end_ns) AS requested_end_ns
    FROM run_spans
), stretches AS (  -- whole base windows
    SELECT run_id, base_ns, first_ns, requested_ms,
           greatest(($peak_window_ms * 1e6 / base_ns)::BIGINT, 1) * base_ns AS peak_ns,
           first_ns + (greatest(requested_begin_ns - first_ns, 0) + base_ns - 1) // base_ns * base_ns AS stretch_begin_ns,
           least(requested_end_ns, last_ns) AS stretch_end_ns,
           CASE WHEN as_paper OR $from_ms IS NOT NULL OR $until_ms IS NOT NULL THEN 'chosen' ELSE span_source END AS stretch
    FROM requested
), lengths AS (
    SELECT *,
           greatest(CASE WHEN requested_ms IS NULL THEN (stretch_end_ns - stretch_begin_ns) // $batches // base_ns
                         ELSE (requested_ms * 1e6 / base_ns)::BIGINT END, 1) * base_ns AS length_ns,
           greatest(least((stretch_end_ns - stretch_begin_ns) // length_ns, $batches), 0) AS sample_count,
           -- the published stretch ends with its last batch
           CASE WHEN $method = 'paper' THEN stretch_begin_ns + sample_count * length_ns ELSE stretch_end_ns END AS peaks_end_ns
    FROM stretches
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
), volumes AS (
    SELECT run_id, number, sum(bytes) AS bytes
    FROM cells
    GROUP BY ALL
), numbered AS (
    SELECT run_id, length_ns, unnest(range(sample_count)) AS number
    FROM lengths
    JOIN heaviest USING (run_id)
), batch_means AS (
    SELECT run_id, number, coalesce(bytes, 0) * 8 / length_ns AS rate
    FROM numbered
    LEFT JOIN volumes USING (run_id, number)
), moments AS (
    SELECT run_id, count(*) AS sample_size, avg(rate) AS mean_rate,
           CASE WHEN count(*) < 2 THEN NULL WHEN $method = 'paper' THEN stddev_pop(rate) ELSE stddev_samp(rate) END AS deviation
    FROM batch_means
    GROUP BY run_id
), neighbours AS (
    SELECT run_id, rate - mean_rate AS off, lag(rate - mean_rate) OVER (PARTITION BY run_id ORDER BY number) AS off_before
    FROM batch_means
    JOIN moments USING (run_id)
), correlations AS (
    SELECT run_id, sum(off * off_before) / nullif(sum(off * off), 0) AS lag1
    FROM neighbours
    GROUP BY run_id
), intervals AS (
    SELECT run_id, sample_size, mean_rate, deviation,
           CASE WHEN $method = 'paper' THEN 1.96 ELSE t END * deviation / sqrt(sample_size) AS corrected,
           CASE WHEN $method = 'paper' THEN 1.96 * deviation / 10 ELSE corrected END AS half_width
    FROM moments
    LEFT JOIN student_t ON df = least(sample_size - 1, 1000)
)
SELECT r.run_id, framework_setting, model,
       CASE $method
            WHEN 'student' THEN coalesce(sample_size || ' batch means, Student''s t', 'no batch in the stretch')
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
       half_width AS half_width_gbit_per_s,
       mean_rate - half_width AS low_gbit_per_s,
       mean_rate + half_width AS high_gbit_per_s,
       corrected AS corrected_half_width_gbit_per_s,
       deviation AS std_gbit_per_s,
       lag1 AS lag1_autocorrelation,
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
LEFT JOIN correlations USING (run_id)
LEFT JOIN peaks USING (run_id)
ORDER BY r.run_id
