-- question: How do the pairs of hosts of a run take turns when it is busiest?
-- subject: throughput
-- row: a run, a directed pair of hosts and a window of the excerpt in which it sent something
-- inputs: runs, flows, flow_windows, host_names, figure_runs
-- param: window_ms DOUBLE > 0 = 10; length of a window, ms; at least the base window of the dataset
-- param: length_ms DOUBLE > 0 = 250; length of the excerpt, ms
-- param: runs BIGINT = NULL; only this many runs, in the order of figure_runs; NULL: all
-- param: pairs BIGINT = NULL; only this many pairs of a run, those that send most in the excerpt; NULL: all
-- figure: zerwas fig. 7
-- column: run_id from flows
-- column: pair; sender and receiver, by their names in figures
-- column: excerpt_start_ms ms; start of the excerpt since the run's first base window
-- column: excerpt_ms ms; length of the excerpt
-- column: window_ms ms; length of a window
-- column: since_excerpt_ms ms; start of the window since the start of the excerpt
-- column: wire_bytes bytes; wire bytes of the pair in the window
-- column: gbit_per_s Gbit/s; these bytes over the window's length
-- column: link_share share; that over the declared rate of a link (bandwidth_mbit): above 1 in a short window by the shaper's burst; null without one
-- The excerpt is the run's stretch of that length with the most wire bytes, the earliest of equals. Windows are counted
-- from the base window of the run's first packet.
WITH span AS MATERIALIZED (
    SELECT run_id, min(window_start_ns) AS begin_ns,
           (greatest(round($window_ms * 1e6 / max(window_ns)), 1) * max(window_ns))::BIGINT AS length_ns,
           greatest(($length_ms * 1e6)::BIGINT // length_ns, 1) AS excerpt_windows
    FROM flow_windows
    JOIN figure_runs USING (run_id)
    WHERE $runs IS NULL OR place <= $runs
    GROUP BY run_id
), numbered AS MATERIALIZED (  -- grouping by a number is twice as quick as by text
    SELECT run_id, begin_ns, length_ns, excerpt_windows, row_number() OVER (ORDER BY run_id) AS run_number
    FROM span
), run_windows AS (
    SELECT run_number, (window_start_ns - begin_ns) // length_ns AS number, sum(wire_bytes)::BIGINT AS bytes
    FROM flow_windows
    JOIN numbered USING (run_id)
    GROUP BY ALL
), stretches AS (
    SELECT run_number, number AS first_number,
           sum(bytes) OVER (PARTITION BY run_number ORDER BY number
                            RANGE BETWEEN CURRENT ROW AND excerpt_windows - 1 FOLLOWING) AS bytes
    FROM run_windows
    JOIN numbered USING (run_number)
), busiest AS (
    SELECT run_number, arg_max(first_number, (bytes, -first_number)) AS first_number
    FROM stretches
    GROUP BY run_number
), excerpt AS MATERIALIZED (
    SELECT run_id, first_number, begin_ns, length_ns, excerpt_windows,
           begin_ns + first_number * length_ns AS excerpt_ns, excerpt_ns + excerpt_windows * length_ns AS excerpt_end_ns
    FROM busiest
    JOIN numbered USING (run_number)
), chosen AS (
    SELECT w.run_id, src_ip, dst_ip, (window_start_ns - excerpt_ns) // length_ns AS number, sum(w.wire_bytes) AS bytes
    FROM flow_windows AS w
    JOIN excerpt USING (run_id)
    JOIN flows USING (run_id, flow_id)
    WHERE window_start_ns >= excerpt_ns AND window_start_ns < excerpt_end_ns
    GROUP BY ALL
), pairs AS (
    SELECT run_id, src_ip, dst_ip, row_number() OVER (PARTITION BY run_id ORDER BY sum(bytes) DESC, src_ip, dst_ip) AS size_place
    FROM chosen
    GROUP BY run_id, src_ip, dst_ip
    QUALIFY $pairs IS NULL OR size_place <= $pairs
)
SELECT chosen.run_id,
       coalesce(src.host, chosen.src_ip) || ' → ' || coalesce(dst.host, chosen.dst_ip) AS pair,
       first_number * length_ns / 1e6 AS excerpt_start_ms,
       excerpt_windows * length_ns / 1e6 AS excerpt_ms,
       length_ns / 1e6 AS window_ms,
       number * length_ns / 1e6 AS since_excerpt_ms,
       bytes::BIGINT AS wire_bytes,
       bytes * 8 / length_ns AS gbit_per_s,
       bytes * 8e3 / length_ns / bandwidth_mbit AS link_share
FROM chosen
JOIN pairs USING (run_id, src_ip, dst_ip)
JOIN excerpt USING (run_id)
LEFT JOIN runs ON runs.run_id = chosen.run_id
LEFT JOIN host_names AS src ON src.run_id = chosen.run_id AND src.host_ip = chosen.src_ip
LEFT JOIN host_names AS dst ON dst.run_id = chosen.run_id AND dst.host_ip = chosen.dst_ip
ORDER BY chosen.run_id, src.place NULLS LAST, chosen.src_ip, dst.place NULLS LAST, chosen.dst_ip, number
