-- question: When does one pair of hosts send in otherwise equal runs of several batch sizes?
-- subject: throughput
-- row: a run of the comparison and a window of the excerpt in which its pair sent something
-- inputs: runs, flows, steps, heaviest_pairs, flow_windows, run_spans, framework_settings
-- param: steps BIGINT > 0 = 2; steps of the excerpt
-- param: length_ms DOUBLE > 0 = NULL; length of the excerpt, ms; NULL: so many steps, of the compared run in which they take longest; 250 without logs
-- param: window_ms DOUBLE > 0 = NULL; length of a window, ms; NULL: the shortest of 1, 2 or 5 times a power of ten that makes at most 250; at least the base window of the dataset
-- param: from_ms DOUBLE = NULL; start of the excerpt, ms since the run's first packet; NULL: the first step that begins after the middle of the training
-- figure: zerwas fig. 9 (there length_ms 250, window_ms 10)
-- column: comparison; first run by name of the runs that are compared
-- column: run_id from flows
-- column: framework_setting
-- column: model; name of the trained model; unknown where it is not declared
-- column: batch_size
-- column: pair
-- column: excerpt_start_ms ms; start of the excerpt since the run's first base window
-- column: excerpt_ms ms; length of the excerpt
-- column: sample_ms ms; length of a window
-- column: since_excerpt_ms ms; start of the window since the start of the excerpt
-- column: wire_bytes bytes; wire bytes of the pair in the window
-- column: gbit_per_s Gbit/s; these bytes over the window's length
-- Runs are otherwise equal where framework, backend, model, optimizer, topology, workers, delay, loss, bandwidth,
-- congestion control and variant are the same. Of several runs of a batch size the first by name is shown; settings with one batch size are
-- left out. The pair is the one with the most payload inside steps (heaviest_pairs). Compared runs have excerpts of one
-- length, so that each has whole steps, a burst and a valley each, and the lengths of valleys can be compared.
WITH settings AS (
    SELECT run_id, batch_size,
           -- a struct, in which null equals null
           {'framework': framework, 'backend': backend, 'model': model, 'optimizer': optimizer, 'topology': topology,
            'workers': workers, 'ranks': coalesce(ranks_per_host, 1), 'delay': delay_ms, 'loss': loss_pct, 'bandwidth': bandwidth_mbit,
            'congestion_control': congestion_control, 'variant': variant} AS setting
    FROM runs
    WHERE batch_size IS NOT NULL AND run_id IN (SELECT run_id FROM flows)
), firsts AS (
    SELECT run_id, batch_size, setting
    FROM settings
    QUALIFY row_number() OVER (PARTITION BY setting, batch_size ORDER BY run_id) = 1
), compared AS (
    SELECT run_id, batch_size, setting,
           min(run_id) OVER (PARTITION BY setting) AS comparison
    FROM firsts
    QUALIFY count(*) OVER (PARTITION BY setting) > 1
), pairs AS MATERIALIZED (
    FROM heaviest_pairs
    WHERE run_id IN (SELECT run_id FROM compared)
), members AS (
    SELECT run_id, flow_id
    FROM flows
    JOIN pairs USING (run_id, src_ip, dst_ip)
), later_steps AS (  -- from the middle on
    SELECT s.run_id, start_ns, s.end_ns, row_number() OVER (PARTITION BY s.run_id ORDER BY start_ns, step) AS place
    FROM (SELECT run_id, step, min(start_ns) AS start_ns, max(end_ns) AS end_ns FROM steps GROUP BY run_id, step) AS s
    JOIN run_spans AS r ON r.run_id = s.run_id AND start_ns >= begin_ns + (r.end_ns - begin_ns) // 2 AND start_ns < r.end_ns
), middles AS (
    SELECT run_id, min(start_ns) AS step_ns, max(end_ns) FILTER (place <= $steps) - min(start_ns) AS steps_ns
    FROM later_steps
    GROUP BY run_id
), lengths AS (
    SELECT comparison, coalesce($length_ms * 1e6, max(steps_ns), 250e6) AS length_ns, 10 ** floor(log10(length_ns / 250)) AS power_ns,
           coalesce($window_ms * 1e6, power_ns * CASE WHEN length_ns / 250 <= power_ns THEN 1
                                                      WHEN length_ns / 250 <= 2 * power_ns THEN 2
                                                      WHEN length_ns / 250 <= 5 * power_ns THEN 5
                                                      ELSE 10 END) AS window_ns
    FROM compared
    LEFT JOIN middles USING (run_id)
    GROUP BY comparison
), grid AS (
    SELECT run_id, first_ns,
           -- whole base windows, so that none falls into two
           first_ns + (coalesce(first_ns + ($from_ms * 1e6)::BIGINT, step_ns, begin_ns + (end_ns - begin_ns) // 2) - first_ns)
                      // base_ns * base_ns AS excerpt_ns,
           greatest((window_ns / base_ns)::BIGINT, 1) * base_ns AS window_length_ns,
           greatest(ceil(length_ns / window_length_ns)::BIGINT, 1) AS excerpt_windows
    FROM run_spans
    JOIN compared USING (run_id)
    JOIN lengths USING (comparison)
    LEFT JOIN middles USING (run_id)
), member_lists AS (  -- a row a run, so that DuckDB builds its join on this side and not on the windows
    SELECT run_id, list(flow_id) AS flow_ids
    FROM members
    GROUP BY run_id
), chosen AS MATERIALIZED (
    SELECT run_id, flow_ids, excerpt_ns, window_length_ns, excerpt_ns + excerpt_windows * window_length_ns AS excerpt_end_ns
    FROM grid
    JOIN member_lists USING (run_id)
), windowed AS (
    SELECT w.run_id, (window_start_ns - excerpt_ns) // window_length_ns AS number, sum(wire_bytes) AS bytes
    FROM flow_windows AS w
    JOIN chosen USING (run_id)
    WHERE list_contains(flow_ids, flow_id) AND window_start_ns - excerpt_ns >= 0 AND window_start_ns - excerpt_end_ns < 0
      -- of all runs together, so that the rest of the files is not read
      AND window_start_ns >= (SELECT min(excerpt_ns) FROM chosen)
      AND window_start_ns < (SELECT max(excerpt_end_ns) FROM chosen)
    GROUP BY ALL
)
SELECT comparison, c.run_id, framework_setting, coalesce(setting.model, 'unknown') AS model, c.batch_size,
       pair,
       (excerpt_ns - first_ns) / 1e6 AS excerpt_start_ms,
       excerpt_windows * window_length_ns / 1e6 AS excerpt_ms,
       window_length_ns / 1e6 AS sample_ms,
       number * window_length_ns / 1e6 AS since_excerpt_ms,
       bytes::BIGINT AS wire_bytes,
       bytes * 8 / window_length_ns AS gbit_per_s
FROM compared AS c
JOIN framework_settings USING (run_id)
JOIN pairs USING (run_id)
JOIN grid USING (run_id)
JOIN windowed USING (run_id)
ORDER BY comparison, c.batch_size, c.run_id, number
