-- question: Is the ring inferred from the traffic the one that was declared?
-- row: a run
-- inputs: runs, hosts, ring_order
-- figure: farhat section 3 (the ring follows the order of the launch command)
-- column: run_id; run
-- column: declared_topology; topology as declared
-- column: is_ring; whether the traffic forms a ring (ring_order)
-- column: declared_ring; hosts in declared order, separated by >
-- column: inferred_ring; hosts in the order in which data flows, separated by >
-- column: agrees; whether both have the same edges; without a declared order whether is_ring fits the declared topology; null where nothing is declared
WITH inferred AS (
    SELECT run_id, bool_or(is_ring) AS is_ring,
           string_agg(coalesce(label, o.host_ip), ' > ' ORDER BY position) AS inferred_ring
    FROM ring_order AS o
    LEFT JOIN hosts USING (run_id, host_ip)
    GROUP BY run_id
), declared AS (
    SELECT run_id, host_ip, coalesce(label, host_ip) AS host, ring_position, count(*) OVER (PARTITION BY run_id) AS size
    FROM hosts
    WHERE ring_position IS NOT NULL
), declared_ring AS (
    SELECT run_id, string_agg(host, ' > ' ORDER BY ring_position) AS declared_ring
    FROM declared
    GROUP BY run_id
), matching AS (  -- the same edges, wherever the order begins
    SELECT a.run_id, count(o.run_id) = any_value(a.size) AS same_edges
    FROM declared AS a
    JOIN declared AS b ON b.run_id = a.run_id AND b.ring_position = (a.ring_position + 1) % a.size
    LEFT JOIN ring_order AS o ON o.run_id = a.run_id AND o.host_ip = a.host_ip AND o.next_host_ip = b.host_ip
    GROUP BY a.run_id
)
SELECT run_id, topology AS declared_topology, is_ring, declared_ring, inferred_ring,
       CASE WHEN declared_ring IS NOT NULL THEN same_edges
            WHEN topology IS NOT NULL THEN is_ring = (topology = 'ring')
       END AS agrees
FROM runs
LEFT JOIN inferred USING (run_id)
LEFT JOIN declared_ring USING (run_id)
LEFT JOIN matching USING (run_id)
ORDER BY run_id
