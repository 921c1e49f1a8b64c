-- question: To how many hosts does each host send the exchange of a run, and from how many does it receive?
-- row: a run, a level of topology_edges and a host with an edge
-- inputs: topology_edges
-- column: run_id; run
-- column: level; level of topology_edges
-- column: host_ip; address of the host
-- column: outs edges; directed pairs in which the host sends
-- column: ins edges; directed pairs in which it receives
WITH ends AS (
    SELECT run_id, level, src_ip AS host_ip, 1 AS outs, 0 AS ins
    FROM topology_edges
    UNION ALL
    SELECT run_id, level, dst_ip, 0, 1
    FROM topology_edges
)
SELECT run_id, level, host_ip, sum(outs)::BIGINT AS outs, sum(ins)::BIGINT AS ins
FROM ends
GROUP BY run_id, level, host_ip
ORDER BY run_id, level, host_ip
