-- question: Between which hosts does the payload of each run go, and where are its root and the order of its ring?
-- subject: topology
-- row: a run and a directed pair of hosts (run_hosts) that sends payload
-- inputs: flows, host_names, run_hosts, topology, ring_order
-- param: most_hosts BIGINT > 0 = 64; only pairs among this many hosts of a run, the first by rank
-- column: run_id
-- column: topology; inferred topology (topology)
-- column: confidence share; of topologies inferred with this confidence, so many are right
-- column: src_host; sender, by its name in figures
-- column: src_place; number of the sender among the run's hosts, from 1
-- column: dst_host; receiver, by its name in figures
-- column: dst_place; number of the receiver
-- column: payload_bytes bytes; payload of all flows from the sender to the receiver
-- column: share_of_heaviest ratio; payload_bytes over that of the run's heaviest pair
-- column: src_position; place of the sender in the ring, from 0 (ring_order); null without a ring
-- column: src_is_root; whether the sender is the root or centre
-- column: dst_is_root; whether the receiver is
WITH counting AS MATERIALIZED (
    FROM run_hosts
), pairs AS (
    SELECT run_id, src_ip, dst_ip, sum(payload_bytes)::BIGINT AS payload
    FROM flows
    SEMI JOIN counting AS s ON s.run_id = flows.run_id AND s.host_ip = src_ip
    SEMI JOIN counting AS d ON d.run_id = flows.run_id AND d.host_ip = dst_ip
    GROUP BY run_id, src_ip, dst_ip
    HAVING payload > 0
), ends AS (
    SELECT run_id, src_ip AS host_ip FROM pairs
    UNION
    SELECT run_id, dst_ip FROM pairs
), shown AS (
    SELECT run_id, host_ip, coalesce(host, host_ip) AS host, position,
           row_number() OVER (PARTITION BY run_id ORDER BY n.place NULLS LAST, length(host_ip), host_ip) AS place
    FROM ends
    LEFT JOIN host_names AS n USING (run_id, host_ip)
    LEFT JOIN (FROM ring_order WHERE is_ring) USING (run_id, host_ip)
)
SELECT p.run_id, topology, confidence, src.host AS src_host, src.place AS src_place, dst.host AS dst_host,
       dst.place AS dst_place, payload AS payload_bytes,
       payload / max(payload) OVER (PARTITION BY p.run_id) AS share_of_heaviest, src.position AS src_position,
       coalesce(root_ip = src_ip, false) AS src_is_root, coalesce(root_ip = dst_ip, false) AS dst_is_root
FROM pairs AS p
JOIN shown AS src ON src.run_id = p.run_id AND src.host_ip = src_ip
JOIN shown AS dst ON dst.run_id = p.run_id AND dst.host_ip = dst_ip
LEFT JOIN topology AS t ON t.run_id = p.run_id
QUALIFY greatest(src.place, dst.place) <= $most_hosts
ORDER BY p.run_id, src_place, dst_place
