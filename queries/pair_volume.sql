-- question: How much do the hosts of a run exchange, under the names that a figure gives them?
-- subject: volume
-- row: a run and a directed pair of hosts that sent something
-- inputs: traffic_matrix, host_names, figure_runs
-- param: runs BIGINT = NULL; only this many runs, in the order of figure_runs; NULL: all
-- param: hosts BIGINT = NULL; only the pairs among this many hosts of a run, those with the most traffic; NULL: all
-- figure: zerwas fig. 4
-- column: run_id
-- column: src_place; number of the sender among the run's hosts shown, from 1
-- column: src_host; sender, by its name in figures
-- column: dst_place; number of the receiver
-- column: dst_host; receiver, by its name in figures
-- column: packets
-- column: wire_bytes bytes; sum of the packets' original lengths
-- column: share_of_run share; part of the run's wire bytes
-- column: is_heavy; whether the pair has at least half of the wire bytes of the run's heaviest pair
WITH matrix AS (
    SELECT m.*, sum(wire_bytes) OVER (PARTITION BY run_id) AS run_bytes,
           max(wire_bytes) OVER (PARTITION BY run_id) AS heaviest_bytes
    FROM traffic_matrix AS m
    JOIN figure_runs AS f USING (run_id)
    WHERE $runs IS NULL OR f.place <= $runs
), ends AS (
    SELECT run_id, src_ip AS host_ip, wire_bytes FROM matrix
    UNION ALL
    SELECT run_id, dst_ip, wire_bytes FROM matrix
), shown AS (  -- a multicast address is an end of pairs, but no host
    SELECT run_id, host_ip, coalesce(any_value(host), host_ip) AS host,
           row_number() OVER (PARTITION BY run_id ORDER BY any_value(place) NULLS LAST, host_ip) AS place
    FROM ends
    LEFT JOIN host_names USING (run_id, host_ip)
    GROUP BY run_id, host_ip
    QUALIFY $hosts IS NULL
         OR row_number() OVER (PARTITION BY run_id ORDER BY sum(wire_bytes) DESC, host_ip) <= $hosts
)
SELECT m.run_id, src.place AS src_place, src.host AS src_host, dst.place AS dst_place, dst.host AS dst_host,
       packets, wire_bytes,
       wire_bytes / run_bytes AS share_of_run,
       wire_bytes >= 0.5 * heaviest_bytes AS is_heavy  -- as in ring_order, but of wire bytes
FROM matrix AS m
JOIN shown AS src ON src.run_id = m.run_id AND src.host_ip = m.src_ip
JOIN shown AS dst ON dst.run_id = m.run_id AND dst.host_ip = m.dst_ip
ORDER BY m.run_id, src_place, dst_place
