-- question: When does each flow of a run send, in windows that suit the run's length?
-- subject: throughput
-- row: a run, a flow and a window in which it sent something
-- inputs: flow_connections, five_tuples, flow_names, flow_windows, figure_runs
-- param: runs BIGINT = NULL; only this many runs, in the order of figure_runs; NULL: all
-- param: flows BIGINT = NULL; only this many flows of a run, the largest; NULL: all
-- param: windows BIGINT > 0 = 100; most windows from a run's first packet to its last; a window is 1, 2 or 5 times a power of ten
-- figure: zerwas fig. 6 (10 s windows)
-- column: run_id
-- column: flow_place; number of the flow in its run by wire bytes, from 1
-- column: flow; sender and receiver with their ports, by the names of host_names (flow_names)
-- column: is_large; whether the flow is one of those that together carry 99% of the wire bytes
-- column: active_share share; part of the run's windows in which the flow sent something
-- column: window_s s; length of a window
-- column: since_start_s s; start of the window since the run's first base window
-- column: wire_bytes bytes; wire bytes of the flow in the window
-- column: gbit_per_s Gbit/s; these bytes over the window's length
-- column: share_of_peak share; wire_bytes over those of the run's busiest flow and window
-- The first window begins with the base window of the run's first packet. Large flows are those of flow_counts with its
-- default share.
WITH thresholds AS (
    SELECT 0.99 AS large_share  -- of the run's wire bytes: as in flow_counts
), span AS (
    SELECT run_id, min(window_start_ns) AS begin_ns, max(window_start_ns + window_ns) AS end_ns,
           max(window_ns) AS base_ns
    FROM flow_windows
    JOIN figure_runs USING (run_id)
    WHERE $runs IS NULL OR place <= $runs
    GROUP BY run_id
), least AS (
    SELECT *, greatest((end_ns - begin_ns) / $windows, base_ns) AS least_ns, 10 ** floor(log10(least_ns)) AS power_ns
    FROM span
), grid AS (
    SELECT run_id, begin_ns, end_ns,
           -- whole base windows, so that none falls into two
           (ceil(power_ns * CASE WHEN least_ns <= power_ns THEN 1
                                 WHEN least_ns <= 2 * power_ns THEN 2
                                 WHEN least_ns <= 5 * power_ns THEN 5
                                 ELSE 10 END / base_ns) * base_ns)::BIGINT AS length_ns
    FROM least
), ranked AS (
    SELECT *, row_number() OVER by_size AS flow_place,
           sum(wire_bytes) OVER (by_size ROWS UNBOUNDED PRECEDING) - wire_bytes
               < large_share * sum(wire_bytes) OVER (PARTITION BY run_id) AS is_large
    FROM five_tuples
    CROSS JOIN thresholds
    WINDOW by_size AS (PARTITION BY run_id ORDER BY wire_bytes DESC, flow_id)
), windowed AS (
    SELECT w.run_id, n.flow_id, (window_start_ns - begin_ns) // length_ns AS number, sum(w.wire_bytes) AS bytes
    FROM flow_windows AS w
    JOIN grid USING (run_id)
    JOIN flow_connections AS n ON n.run_id = w.run_id AND n.connection_id = w.flow_id
    GROUP BY ALL
), compared AS (
    SELECT *, max(bytes) OVER (PARTITION BY run_id) AS peak_bytes,
           count(*) OVER (PARTITION BY run_id, flow_id) AS active_windows
    FROM windowed
)
SELECT compared.run_id, flow_place,
       flow,
       is_large,
       active_windows / ceil((end_ns - begin_ns) / length_ns) AS active_share,
       length_ns / 1e9 AS window_s,
       number * length_ns / 1e9 AS since_start_s,
       bytes::BIGINT AS wire_bytes,
       bytes * 8 / length_ns AS gbit_per_s,
       bytes / peak_bytes AS share_of_peak
FROM compared
JOIN grid USING (run_id)
JOIN ranked USING (run_id, flow_id)
JOIN flow_names USING (run_id, flow_id)
WHERE $flows IS NULL OR flow_place <= $flows
ORDER BY compared.run_id, flow_place, number
