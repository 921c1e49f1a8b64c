-- question: How long are the bursts of communication and the valleys between them, at which batch size?
-- subject: throughput
-- row: a run
-- inputs: runs, flows, logged_steps, heaviest_pairs, flow_windows, run_spans, framework_settings, inferred_steps, unknown_payload
-- answer: batch_size, burst_ms, valley_ms
-- param: window_ms DOUBLE > 0 = 1; length of a window, ms; at least the base window of the dataset
-- param: gap_ms DOUBLE = 10; where the traffic shows no steps, a burst ends when no window reaches the threshold for longer than this, ms (the paper's windows are 10 ms)
-- param: threshold DOUBLE = 0.05; least volume of a window that belongs to a burst, as a share of the volume of the busiest window
-- figure: zerwas fig. 9
-- column: run_id from flows
-- column: framework_setting
-- column: model
-- column: topology
-- column: batch_size
-- column: pair
-- column: stretch; time examined: training, or capture where no log covers the traffic (run_spans)
-- column: bursts_of; step: a burst is what the pair sends in a step that the traffic shows; pause: what it sends between two pauses
-- column: bursts bursts; bursts of the pair in it
-- column: steps steps; different steps in the run's logs; null without a log
-- column: burst_ms ms; mean length of a burst
-- column: median_burst_ms ms; median length of a burst
-- column: valley_ms ms; mean length of a valley
-- column: median_valley_ms ms; median length of a valley
-- column: computation_to_communication ratio; mean valley over mean burst, which the paper takes for computation over communication; waiting for the network is in valleys and makes it larger
-- column: burst_gbit_per_s Gbit/s; wire bytes of all bursts over their time
-- column: peak_gbit_per_s Gbit/s; wire bytes of the busiest window over its length
-- column: burst_wire_bytes bytes; mean wire bytes of a burst
-- column: share_in_bursts share; part of the pair's wire bytes in the stretch that is in bursts
-- The pair is the one with the most payload inside steps (heaviest_pairs), during the training (run_spans). A burst of a
-- step goes from the first window at the threshold to the last one in a step of inferred_steps, so that pauses inside the
-- communication (rounds of a collective, waiting for a slow worker) are in it. Where the traffic shows no steps
-- (asynchronous training), a burst ends before a gap, and bursts are not steps: those with traffic in every gap join.
-- A valley is the time between two bursts. In the paper valleys stand for computation, bursts for communication; a
-- program that communicates also waits, which is in valleys, too (overlap_summary has what programs log).
WITH pairs AS MATERIALIZED (
    FROM heaviest_pairs
), members AS (
    SELECT run_id, flow_id
    FROM flows
    JOIN pairs USING (run_id, src_ip, dst_ip)
), grid AS (
    SELECT run_id, begin_ns, end_ns, span_source, greatest(($window_ms * 1e6 / base_ns)::BIGINT, 1) * base_ns AS length_ns,
           $gap_ms * 1e6 / length_ns AS gap_windows
    FROM run_spans
), member_lists AS (  -- a row a run, so that DuckDB builds its join on this side and not on the windows
    SELECT run_id, list(flow_id) AS flow_ids
    FROM members
    GROUP BY run_id
), chosen AS MATERIALIZED (
    SELECT run_id, row_number() OVER (ORDER BY run_id) AS run_number, flow_ids, begin_ns, end_ns, length_ns, gap_windows
    FROM grid
    JOIN member_lists USING (run_id)
), windowed AS MATERIALIZED (  -- runs by number: grouping by text takes twice as long
    SELECT run_number, (window_start_ns - begin_ns) // length_ns AS number, sum(wire_bytes)::BIGINT AS bytes
    FROM flow_windows
    JOIN chosen USING (run_id)
    WHERE list_contains(flow_ids, flow_id) AND window_start_ns - begin_ns >= 0 AND window_start_ns - end_ns < 0
    GROUP BY ALL
), run_peaks AS MATERIALIZED (
    SELECT run_number, max(bytes) AS peak_bytes, sum(bytes) AS bytes
    FROM windowed
    GROUP BY run_number
), judged AS (
    SELECT run_number, number, number // 60 AS block, windowed.bytes,
           windowed.bytes > 0 AND windowed.bytes >= $threshold * peak_bytes AS is_busy
    FROM windowed
    JOIN run_peaks USING (run_number)
), blocks AS MATERIALIZED (
    SELECT run_number, block, min(number) AS start_number, max(number) AS stop_number, sum(bytes)::BIGINT AS bytes,
           count(*) FILTER (is_busy) = 60 AS is_full
    FROM judged
    GROUP BY run_number, block
), partial_blocks AS (
    SELECT run_number, block
    FROM blocks
    WHERE NOT is_full
), pieces AS MATERIALIZED (  -- blocks that are busy throughout are taken whole: to order all windows takes ten times as long
    SELECT run_number, start_number, stop_number, bytes, true AS is_busy
    FROM blocks
    WHERE is_full
    UNION ALL
    SELECT run_number, number, number, bytes, is_busy
    FROM judged
    JOIN partial_blocks USING (run_number, block)
), busy AS (
    SELECT run_number, start_number,
           start_number - lag(stop_number) OVER (PARTITION BY run_number ORDER BY start_number) - 1 AS idle_windows
    FROM pieces
    WHERE is_busy
), step_starts AS MATERIALIZED (
    SELECT run_number, step, (start_ns - begin_ns) // length_ns AS start_number
    FROM inferred_steps() AS s
    JOIN chosen USING (run_id)
    WHERE structured
), starts AS (
    SELECT b.run_number, min(b.start_number) AS first_number
    FROM busy AS b
    ASOF JOIN step_starts AS s ON s.run_number = b.run_number AND s.start_number <= b.start_number
    GROUP BY b.run_number, step
    UNION ALL
    SELECT run_number, start_number
    FROM busy
    JOIN chosen USING (run_number)
    WHERE (idle_windows IS NULL OR idle_windows > gap_windows) AND run_number NOT IN (SELECT run_number FROM step_starts)
), assigned AS (
    SELECT w.run_number, first_number, stop_number, bytes, is_busy
    FROM pieces AS w
    ASOF JOIN starts AS s ON s.run_number = w.run_number AND s.first_number <= w.start_number
), spans AS (
    SELECT run_number, first_number, max(stop_number) FILTER (is_busy) AS last_number
    FROM assigned
    GROUP BY ALL
), bursts AS (  -- weak windows inside a burst are its own, those after its last busy one are not
    SELECT run_id, first_number, last_number, sum(bytes) AS bytes
    FROM assigned
    JOIN spans USING (run_number, first_number)
    JOIN chosen USING (run_number)
    WHERE stop_number <= last_number
    GROUP BY ALL
), peaks AS (
    SELECT run_id, peak_bytes, bytes
    FROM run_peaks
    JOIN chosen USING (run_number)
), measured AS (
    SELECT run_id, bytes, last_number - first_number + 1 AS burst_windows,
           lead(first_number) OVER (PARTITION BY run_id ORDER BY first_number) - last_number - 1 AS valley_windows
    FROM bursts
), summed AS (
    SELECT run_id, count(*) AS bursts, sum(bytes) AS bytes, sum(burst_windows) AS windows,
           avg(burst_windows) AS mean_burst, median(burst_windows) AS median_burst,
           avg(valley_windows) AS mean_valley, median(valley_windows) AS median_valley
    FROM measured
    GROUP BY run_id
)
SELECT r.run_id, framework_setting, model, topology, batch_size,
       pair,
       span_source AS stretch,
       CASE WHEN bursts > 0
            THEN CASE WHEN r.run_id IN (SELECT run_id FROM chosen JOIN step_starts USING (run_number)) THEN 'step' ELSE 'pause' END END AS bursts_of,
       CASE WHEN r.run_id NOT IN (SELECT run_id FROM unknown_payload) THEN coalesce(bursts, 0) END AS bursts, steps,
       mean_burst * length_ns / 1e6 AS burst_ms,
       median_burst * length_ns / 1e6 AS median_burst_ms,
       mean_valley * length_ns / 1e6 AS valley_ms,
       median_valley * length_ns / 1e6 AS median_valley_ms,
       mean_valley / mean_burst AS computation_to_communication,
       b.bytes * 8 / (windows * length_ns) AS burst_gbit_per_s,
       v.peak_bytes * 8 / length_ns AS peak_gbit_per_s,
       b.bytes / bursts AS burst_wire_bytes,
       b.bytes / v.bytes AS share_in_bursts
FROM runs AS r
JOIN framework_settings USING (run_id)
LEFT JOIN grid USING (run_id)
LEFT JOIN pairs USING (run_id)
LEFT JOIN summed AS b USING (run_id)
LEFT JOIN peaks AS v USING (run_id)
LEFT JOIN logged_steps USING (run_id)
ORDER BY r.run_id
