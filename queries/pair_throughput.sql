-- question: How fast does each pair of hosts send over time, at a fine grain?
-- subject: throughput
-- row: a run, a directed pair of hosts and a window in which it sent something
-- inputs: runs, flows, flow_windows
-- answer: since_start_ms, gbit_per_s
-- param: window_ms DOUBLE > 0 = 10; length of a window, ms; rounded to whole base windows of the run
-- param: from_ms DOUBLE = 0; start of the first window, ms since the run's first packet
-- param: length_ms DOUBLE > 0 = NULL; how much time from there on, ms; NULL: to the end
-- figure: zerwas fig. 7 (window_ms 10, length_ms 250)
-- column: run_id from flows
-- column: src_ip
-- column: dst_ip
-- column: window_start_ns
-- column: since_start_ms ms; start of the window since the run's first base window
-- column: packets packets; packets of the pair in the window
-- column: wire_bytes bytes; sum of the packets' original lengths
-- column: payload_bytes bytes; payload of these packets
-- column: gbit_per_s Gbit/s; wire_bytes over the window's length
-- column: link_share share; that over the declared rate of a link (bandwidth_mbit): above 1 in a short window by the shaper's burst; null without one
-- Windows are counted from from_ms after the base window of the run's first packet.
WITH span AS MATERIALIZED (
    SELECT run_id, min(window_start_ns) + ($from_ms * 1e6)::BIGINT AS begin_ns,
           (greatest(round($window_ms * 1e6 / max(window_ns)), 1) * max(window_ns))::BIGINT AS window_length_ns
    FROM flow_windows
    GROUP BY run_id
), pair_flows AS MATERIALIZED (  -- one number for a run and a pair: grouping and sorting by text takes twice as long
    SELECT run_id, flow_id, src_ip, dst_ip, begin_ns, window_length_ns,
           dense_rank() OVER (ORDER BY run_id, src_ip, dst_ip) AS pair_number
    FROM flows
    JOIN span USING (run_id)
), pairs AS (
    SELECT DISTINCT pair_number, run_id, src_ip, dst_ip, begin_ns, window_length_ns
    FROM pair_flows
), pair_windows AS (
    SELECT pair_number, (window_start_ns - begin_ns) // window_length_ns AS number,
           sum(w.packets)::BIGINT AS packets, sum(w.wire_bytes)::BIGINT AS wire_bytes,
           sum(w.payload_bytes)::BIGINT AS payload_bytes
    FROM flow_windows AS w
    JOIN pair_flows USING (run_id, flow_id)
    WHERE window_start_ns >= begin_ns
      AND ($length_ms IS NULL OR window_start_ns < begin_ns + ($length_ms * 1e6)::BIGINT)
    GROUP BY ALL
)
SELECT run_id, src_ip, dst_ip,
       begin_ns + number * window_length_ns AS window_start_ns,
       $from_ms + number * window_length_ns / 1e6 AS since_start_ms,
       packets, wire_bytes, payload_bytes,
       wire_bytes * 8 / window_length_ns AS gbit_per_s,
       wire_bytes * 8e3 / window_length_ns / bandwidth_mbit AS link_share
FROM pair_windows
JOIN pairs USING (pair_number)
LEFT JOIN runs USING (run_id)
ORDER BY pair_number, number
