-- What each copy of a TCP flow misses: bytes that were sent, as sequence numbers of the flow or acknowledgement numbers of
-- its reverse flow in the same file prove, and that are not in the file (docs/packets.md).
-- One row: a TCP connection in one file, also one that the filter excludes; missed_bytes null where the numbers of some of
-- its packets are unknown. first_position, next_position: start and end of the flow's numbers, null where it has none.
CREATE TEMP TABLE missed AS
WITH tcp AS (
    SELECT file, flow, src_ip, dst_ip, src_port, dst_port, encapsulation,
           -- inside and outside of tunnels, and of each interface, are copies of their own
           2 * coalesce(interface, 0) + (encapsulation IS NOT NULL)::INTEGER AS place,
           first_sequence, next_sequence, first_acknowledged, acknowledged, gaps, forgotten_bytes, followed, syn_packets,
           fin_packets, payload_bytes - retransmitted_bytes AS different_bytes
    FROM copies WHERE protocol = 6
), several AS (
    -- most five-tuples have one connection: the others alone are numbered, which takes longer
    SELECT file, src_ip, dst_ip, src_port, dst_port, place FROM tcp GROUP BY ALL HAVING count(*) > 1
), numbered AS (
    SELECT *, 1 AS number, 1 AS connections, true AS single
    FROM tcp ANTI JOIN several USING (file, src_ip, dst_ip, src_port, dst_port, place)
    UNION ALL
    SELECT *, row_number() OVER (five_tuple ORDER BY flow), count(*) OVER five_tuple,
           -- of overlapping tunnels, two with the same five-tuple cannot be told apart here
           coalesce(min(encapsulation) OVER five_tuple = max(encapsulation) OVER five_tuple, true)
    FROM tcp SEMI JOIN several USING (file, src_ip, dst_ip, src_port, dst_port, place)
    WINDOW five_tuple AS (PARTITION BY file, src_ip, dst_ip, src_port, dst_port, place)
), paired AS (
    -- connection by connection, and only where both directions have as many
    SELECT f.*, r.fin_packets > 0 AS peer_ended,
           -- where the peer's SYN is in the file, so was all of the connection: what it acknowledged since then was sent
           f.next_sequence IS NULL AND r.syn_packets > 0 AS all_missed,
           r.acknowledged - r.first_acknowledged AS acknowledged_bytes,
           CASE WHEN f.syn_packets = 0 AND r.syn_packets > 0
                THEN (f.first_sequence - r.first_acknowledged + 6442450944) % 4294967296 - 2147483648 END AS before_first,
           f.next_sequence + (r.acknowledged % 4294967296 - f.next_sequence % 4294967296 + 6442450944) % 4294967296
               - 2147483648 AS acknowledged_to
    FROM numbered AS f
    LEFT JOIN numbered AS r
      ON (f.file, f.src_ip, f.dst_ip, f.src_port, f.dst_port, f.place, f.number, f.connections)
       = (r.file, r.dst_ip, r.src_ip, r.dst_port, r.src_port, r.place, r.number, r.connections)
     AND f.single AND r.single AND r.acknowledged IS NOT NULL
), counted AS (
    SELECT *, CASE WHEN all_missed THEN acknowledged_bytes
                   ELSE greatest(acknowledged_to - next_sequence, 0) END AS after_last
    FROM paired
)
SELECT file, flow, first_sequence AS first_position, next_sequence AS next_position, different_bytes,
       CASE WHEN followed
            THEN coalesce(list_sum(list_transform(gaps, lambda gap: gap[2] - gap[1])), 0) + forgotten_bytes
                 + greatest(coalesce(before_first, 0), 0)
                 -- a FIN that was not captured has a number, too
                 + coalesce(after_last, 0)
                 - CASE WHEN fin_packets = 0 AND (after_last = 1 OR (after_last > 1 AND peer_ended)) THEN 1 ELSE 0 END
       END::BIGINT AS missed_bytes,
       CASE WHEN followed
            THEN coalesce(list_sum(list_transform(gaps, lambda gap:
                     CASE WHEN acknowledged_to < gap[2] THEN gap[2] - greatest(gap[1], acknowledged_to) ELSE 0 END)), 0)
       END::BIGINT AS unacknowledged_missed_bytes
FROM counted;
