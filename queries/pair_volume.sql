-- question: How much do the hosts of a run exchange, under the names that a figure gives them?
-- subject: volume
-- row: a run and a directed pair of hosts (run_hosts) that sent something
-- inputs: traffic_matrix, host_names, run_hosts, figure_runs
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
WITH counting AS MATERIALIZED (
    FROM run_hosts
), every AS (
    SELECT m.*, sum(wire_bytes) OVER (PARTITION BY run_id) AS run_bytes
    FROM traffic_matrix AS m
    JOIN figure_runs AS f USING (run_id)
    WHERE $runs IS NULL OR f.place <= $runs
), matrix AS (
    SELECT *, max(wire_bytes) OVER (PARTITION BY run_id) AS heaviest_bytes
    FROM every AS m
    SEMI JOIN counting AS s ON s.run_id = m.run_id AND s.host_ip = src_ip
    SEMI JOIN counting AS d ON d.run_id = m.run_id AND d.host_ip = dst_ip
), ends AS (
    SELECT run_id, src_ip AS host_ip, wire_bytes FROM matrix
    UNION ALL
    SELECT run_id, dst_ip, wire_bytes FROM matrix
), shown AS (
    SELECT run_id, host_ip, any_value(host) AS host,
           row_number() OVER (PARTITION BY run_id ORDER BY any_value(place), host_ip) AS place
    FROM ends
    JOIN host_names USING (run_id, host_ip)
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
