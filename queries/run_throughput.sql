-- question: How fast does each run transmit from its first packet to its last, and how much is sent again?
-- subject: throughput
-- row: a run, a directed pair of hosts and a window in which it sent something
-- inputs: flows, flow_windows, run_spans, host_names
-- param: windows BIGINT > 0 = 300; most windows of a run's training (without a log: of the run), and a tenth of those of the run; a window is 1, 2 or 5 times a power of ten, at least the base window
-- param: pairs BIGINT > 0 = 8; this many pairs of a run, those that send most; all others together are one
-- column: run_id
-- column: pair_place; number of the pair by wire bytes in the run, from 1; the other pairs are the last
-- column: pair; sender and receiver, by their names in figures, or other pairs
-- column: since_start_s s; start of the window since the run's first base window
-- column: window_s s; length of a window
-- column: packets packets; packets of the pair in the window
-- column: wire_bytes bytes; sum of the packets' original lengths
-- column: retransmitted_bytes bytes; payload of them that was sent before, as sequence numbers prove; null where no flow's is known
-- column: gbit_per_s Gbit/s; wire_bytes over the window's length
-- column: training_start_s s; since the run's first base window; without a log, of the window in which 1% of the run's bytes are sent
-- column: training_end_s s; since the run's first base window; without a log, of the window in which 99% of the run's bytes are sent
-- The IO graph of Wireshark, by pair. Windows are counted from the base window of the run's first packet.
WITH thresholds AS (
    SELECT 0.01 AS least_sent, 0.99 AS most_sent
), span AS (
    SELECT run_id, first_ns AS begin_ns, base_ns, span_source, (run_spans.begin_ns - first_ns) / 1e9 AS training_start_s, (end_ns - first_ns) / 1e9 AS training_end_s,
           greatest((end_ns - run_spans.begin_ns) / $windows, (last_ns - first_ns) / (10 * $windows), base_ns) AS least_ns,
           10 ** floor(log10(least_ns)) AS power_ns,
           CASE WHEN least_ns <= power_ns THEN 1 WHEN least_ns <= 2 * power_ns THEN 2 WHEN least_ns <= 5 * power_ns THEN 5 ELSE 10 END
               * power_ns AS wanted_ns,
           greatest(ceil(wanted_ns / base_ns), 1)::BIGINT * base_ns AS length_ns
    FROM run_spans
), sizes AS (
    SELECT run_id, src_ip, dst_ip, row_number() OVER (PARTITION BY run_id ORDER BY sum(wire_bytes) DESC, src_ip, dst_ip) AS size_place
    FROM flows
    GROUP BY run_id, src_ip, dst_ip
), named AS (
    SELECT s.run_id, s.src_ip, s.dst_ip, least(size_place, $pairs + 1) AS pair_place,
           CASE WHEN size_place > $pairs THEN 'other pairs'
                ELSE coalesce(src.host, s.src_ip) || ' → ' || coalesce(dst.host, s.dst_ip) END AS pair
    FROM sizes AS s
    LEFT JOIN host_names AS src ON src.run_id = s.run_id AND src.host_ip = s.src_ip
    LEFT JOIN host_names AS dst ON dst.run_id = s.run_id AND dst.host_ip = s.dst_ip
), flow_sums AS (
    SELECT run_id, flow_id, (window_start_ns - begin_ns) // length_ns AS number, sum(packets)::BIGINT AS packets,
           sum(wire_bytes)::BIGINT AS bytes, sum(retransmitted_bytes)::BIGINT AS again
    FROM flow_windows
    JOIN span USING (run_id)
    GROUP BY ALL
), pair_sums AS (
    SELECT run_id, pair_place, pair, number, sum(s.packets)::BIGINT AS packets, sum(bytes)::BIGINT AS bytes, sum(again)::BIGINT AS again
    FROM flow_sums AS s
    JOIN flows USING (run_id, flow_id)
    JOIN named USING (run_id, src_ip, dst_ip)
    GROUP BY ALL
), moved AS (
    SELECT run_id, min(number) FILTER (sent >= least_sent * total) AS first_number, min(number) FILTER (sent >= most_sent * total) AS last_number
    FROM (SELECT run_id, number, sum(sum(bytes)) OVER (PARTITION BY run_id ORDER BY number) AS sent, sum(sum(bytes)) OVER (PARTITION BY run_id) AS total
          FROM pair_sums
          GROUP BY run_id, number)
    CROSS JOIN thresholds
    GROUP BY run_id
)
SELECT run_id, pair_place, pair, number * length_ns / 1e9 AS since_start_s, length_ns / 1e9 AS window_s, packets,
       bytes AS wire_bytes, again AS retransmitted_bytes, bytes * 8 / length_ns AS gbit_per_s,
       CASE span_source WHEN 'training' THEN training_start_s ELSE first_number * length_ns / 1e9 END AS training_start_s,
       CASE span_source WHEN 'training' THEN training_end_s ELSE least((last_number + 1) * length_ns / 1e9, training_end_s) END AS training_end_s
FROM pair_sums
JOIN span USING (run_id)
JOIN moved USING (run_id)
ORDER BY run_id, number, pair_place
