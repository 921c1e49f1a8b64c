-- question: When are packets sent, relative to the start and end of the iterations?
-- subject: throughput
-- row: a run and a window of the excerpt in which something was sent
-- inputs: flow_windows, iteration_markers
-- param: window_ms DOUBLE > 0 = 5; length of a window, ms; at least the base window of the dataset
-- param: first_step BIGINT = 0; step with which the excerpt begins
-- param: step_count BIGINT > 0 = 5; steps in the excerpt; NULL: all
-- param: margin_ms DOUBLE = 0; time before the first of these steps and after the last, ms
-- param: by_worker VARCHAR = NULL; label of the worker whose log gives the steps; NULL: the run's first, worker-2 before worker-10
-- param: runs BIGINT = NULL; only this many runs, in the order of figure_runs; NULL: all
-- figure: farhat section 3 (packets over marks of the iterations)
-- column: run_id
-- column: length_ms ms; length of a window
-- column: since_excerpt_ms ms; start of the window since the start of the excerpt's first step; negative in the margin
-- column: packets packets; packets in the window
-- column: wire_bytes bytes; sum of the packets' original lengths
-- column: gbit_per_s Gbit/s; these bytes over the window's length
-- The marks are iteration_markers with the same parameters; its begin_ms counts from the same time. Windows are counted
-- from the base window of the excerpt's first step, so the first may begin up to a base window before it.
WITH excerpt AS (
    SELECT run_id, min(start_ns) AS excerpt_ns, min(start_ns) - ($margin_ms * 1e6)::BIGINT AS from_ns,
           max(end_ns) + ($margin_ms * 1e6)::BIGINT AS until_ns
    FROM iteration_markers(first_step := $first_step, step_count := $step_count, by_worker := $by_worker, runs := $runs)
    GROUP BY run_id
), base AS (
    SELECT run_id, any_value(excerpt_ns) AS excerpt_ns, max(window_ns) AS base_ns, window_start_ns,
           sum(packets) AS packets, sum(wire_bytes) AS wire_bytes
    FROM flow_windows
    JOIN excerpt USING (run_id)
    WHERE window_start_ns + window_ns > from_ns AND window_start_ns < until_ns
    GROUP BY run_id, window_start_ns
), grid AS (
    SELECT *, excerpt_ns - excerpt_ns % base_ns AS zero_ns,
           greatest(($window_ms * 1e6)::BIGINT // base_ns, 1) * base_ns AS length_ns  -- whole base windows
    FROM base
), windowed AS (
    SELECT run_id, zero_ns - excerpt_ns AS shift_ns, length_ns,
           floor((window_start_ns - zero_ns) / length_ns)::BIGINT AS number,
           sum(packets)::BIGINT AS packets, sum(wire_bytes)::BIGINT AS wire_bytes
    FROM grid
    GROUP BY ALL
)
SELECT run_id, length_ns / 1e6 AS length_ms,
       (shift_ns + number * length_ns) / 1e6 AS since_excerpt_ms,
       packets, wire_bytes,
       wire_bytes * 8 / length_ns AS gbit_per_s
FROM windowed
ORDER BY run_id, number
