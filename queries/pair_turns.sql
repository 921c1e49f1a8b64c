-- question: When in the communication of a step does each pair of hosts send?
-- subject: throughput
-- row: a run and a directed pair of hosts with payload in its first steps
-- inputs: hosts, flows, flow_windows, steps
-- optional: steps, step_flows
-- column: run_id
-- column: src_ip
-- column: dst_ip
-- column: first_after_ms ms; start of the pair's first busy window since communication begins, mean over the steps
-- column: last_after_ms ms; end of its last busy window since then, mean over the steps
-- The first steps of one worker's log (of the lowest rank) are examined, in base windows with payload. A step's
-- communication begins after the longest pause (the earliest of equals) of the whole run in the step: what is still on
-- its way when the worker logs the step's end belongs to the step before; a window with little payload counts as a
-- pause, too. A pair sends from its first busy window to its last one. The limits are in `thresholds`.
WITH thresholds AS (
    SELECT 10 AS first_steps,       -- steps examined: enough for a mean, few enough to read a small part of the windows
           0.05 AS pause_share,     -- of the payload of the run's busiest window: a window with less is a pause
           0.1 AS busy_share        -- of the payload of the pair's busiest window: a window from here on is busy
), reference AS (
    SELECT s.run_id, step, start_ns, end_ns
    FROM steps AS s
    LEFT JOIN hosts AS h ON h.run_id = s.run_id AND h.label = s.worker
    WHERE step < (SELECT first_steps FROM thresholds)
    QUALIFY dense_rank() OVER (PARTITION BY s.run_id ORDER BY rank NULLS LAST, worker) = 1
), span AS (
    SELECT run_id, min(start_ns) AS begin_ns, max(end_ns) AS end_ns
    FROM reference
    GROUP BY run_id
), pair_flows AS MATERIALIZED (  -- runs and pairs by number: grouping and joining by text takes several times as long
    SELECT run_id, flow_id, src_ip, dst_ip,
           dense_rank() OVER (ORDER BY run_id) AS run_number,
           dense_rank() OVER (ORDER BY run_id, src_ip, dst_ip) AS pair_number
    FROM flows
    JOIN span USING (run_id)
), pairs AS (
    SELECT DISTINCT pair_number, run_id, src_ip, dst_ip
    FROM pair_flows
), early_windows AS MATERIALIZED (  -- few of all windows; to join these to flows takes a fifth of the time
    SELECT run_id, flow_id, window_start_ns, window_ns, payload_bytes
    FROM flow_windows
    JOIN span USING (run_id)
    WHERE payload_bytes > 0 AND window_start_ns BETWEEN begin_ns AND end_ns
), numbered_windows AS MATERIALIZED (  -- else DuckDB groups them twice, before the join by text, and after it
    SELECT run_number, pair_number, window_start_ns, window_ns, payload_bytes
    FROM early_windows
    JOIN pair_flows USING (run_id, flow_id)
), pair_windows AS MATERIALIZED (
    SELECT run_number, pair_number, window_start_ns, max(window_ns) AS window_ns, sum(payload_bytes)::DOUBLE AS bytes
    FROM numbered_windows
    GROUP BY run_number, pair_number, window_start_ns
), run_windows AS MATERIALIZED (
    SELECT run_number, window_start_ns, sum(bytes) AS bytes
    FROM pair_windows
    GROUP BY run_number, window_start_ns
), run_peaks AS (
    SELECT run_number, (SELECT pause_share FROM thresholds) * max(bytes) AS least_bytes
    FROM run_windows
    GROUP BY run_number
), pauses AS (
    SELECT run_number, window_start_ns AS until_ns,
           lag(window_start_ns) OVER (PARTITION BY run_number ORDER BY window_start_ns) AS since_ns
    FROM run_windows AS w
    JOIN run_peaks AS p USING (run_number)
    WHERE w.bytes >= least_bytes
), numbered_steps AS (
    SELECT run_number, step, start_ns, r.end_ns
    FROM reference AS r
    JOIN (SELECT DISTINCT run_id, run_number FROM pair_flows) USING (run_id)
), communication AS (
    SELECT r.run_number, r.step, arg_max(until_ns, (until_ns - since_ns, -until_ns)) AS begin_ns
    FROM numbered_steps AS r
    JOIN pauses AS p ON p.run_number = r.run_number AND p.until_ns > r.start_ns AND p.until_ns <= r.end_ns
    WHERE since_ns IS NOT NULL
    GROUP BY r.run_number, r.step
), last_windows AS (
    SELECT run_number, max(window_start_ns) AS last_ns, 64 * max(window_ns) AS cell_ns
    FROM pair_windows
    GROUP BY run_number
), turns AS (  -- from where communication begins to where that of the next step does
    SELECT run_number, begin_ns, cell_ns,
           coalesce(lead(begin_ns) OVER (PARTITION BY run_number ORDER BY begin_ns), last_ns + 1) AS until_ns
    FROM communication
    JOIN last_windows USING (run_number)
), turn_cells AS (  -- by cells of a grid, so that a window is joined to one or two turns, and not to all of its run
    SELECT run_number, begin_ns, until_ns, cell_ns, unnest(range(begin_ns // cell_ns, (until_ns - 1) // cell_ns + 1)) AS cell
    FROM turns
), pair_peaks AS (
    SELECT pair_number, (SELECT busy_share FROM thresholds) * max(bytes) AS least_bytes
    FROM pair_windows
    GROUP BY pair_number
), busy_pair_windows AS (
    SELECT run_number, pair_number, window_start_ns, window_ns, window_start_ns // (64 * window_ns) AS cell
    FROM pair_windows
    JOIN pair_peaks USING (pair_number)
    WHERE bytes >= least_bytes
), spells AS (
    SELECT pair_number, begin_ns, min(window_start_ns - begin_ns) AS first_ns,
           max(window_start_ns + window_ns - begin_ns) AS last_ns
    FROM busy_pair_windows
    JOIN turn_cells USING (run_number, cell)
    WHERE window_start_ns >= begin_ns AND window_start_ns < until_ns
    GROUP BY pair_number, begin_ns
), means AS (
    SELECT pair_number, avg(first_ns) / 1e6 AS first_after_ms, avg(last_ns) / 1e6 AS last_after_ms
    FROM spells
    GROUP BY pair_number
)
SELECT run_id, src_ip, dst_ip, first_after_ms, last_after_ms
FROM means
JOIN pairs USING (pair_number)
ORDER BY run_id, src_ip, dst_ip
