-- question: Is the topology inferred from the traffic the declared one, and does a ring have the declared order?
-- subject: topology
-- row: a run
-- inputs: runs, hosts, topology, ring_order, topology_words
-- figure: farhat section 3 (the ring follows the order of the launch command)
-- answer: declared_topology, inferred_topology, agrees, problem
-- column: run_id from hosts
-- column: declared_topology; topology as declared, in the metadata's own word
-- column: declared_as; the same in the terms of the query topology; null where the word is not known
-- column: inferred_topology; topology inferred from the traffic (topology)
-- column: is_ring; whether the traffic forms a ring (ring_order)
-- column: declared_ring; hosts in declared order, separated by >
-- column: inferred_ring; hosts in the order in which data flows, separated by >
-- column: ring_order; same, opposite (the same ring in the other direction) or different; null without both rings
-- column: agrees; whether topology, order and, where declared, direction are the declared ones; null where they cannot be compared
-- column: problem; what is missing for a comparison; null where nothing is
-- The order is that of run.toml (ring_position, in the direction in which data flows), or in the topology's word: ring1342
-- is a ring of the workers 1, 3, 4 and 2, in either direction. Topologies that send the same agree (docs/topology.md): of
-- two hosts all, of three hosts those with a centre, a parameter server and a star, servers on workers and a clique. Of
-- several ranks a host (runs.ranks_per_host), a hierarchical_ring whose groups are the hosts is a ring of hosts.
WITH same_traffic(declared_as, topology, fewest_hosts, most_hosts) AS (  -- what else sends the same among so many hosts
    SELECT DISTINCT topology, topology, 3, 1_000_000 FROM topology_words
    UNION ALL
    SELECT DISTINCT topology, 'star', 3, 3 FROM topology_words WHERE topology NOT IN ('ring', 'clique', 'pair_averaging')
    UNION ALL
    VALUES ('parameter_server', 'star', 3, 1_000_000), ('parameter_server', 'sharded_parameter_server', 3, 1_000_000),
           ('parameter_server', 'clique', 3, 1_000_000), ('sharded_parameter_server', 'clique', 3, 1_000_000),
           ('binary_tree_star', 'tree', 3, 8), ('hierarchical_ring', 'halving_doubling', 4, 4)
    UNION ALL  -- a prime number of hosts has no groups
    SELECT 'hierarchical_ring', 'ring', n, n
    FROM range(3, 1000) AS sizes(n)
    WHERE NOT list_contains(list_transform(range(2, least(n, 32)), lambda divisor: n % divisor), 0)
), numbered AS (
    SELECT run_id, host_ip, coalesce(label, host_ip) AS host, ring_position,
           coalesce(try_cast(regexp_extract(label, '([0-9]+)$', 1) AS BIGINT), rank) AS number
    FROM hosts
), letters AS (
    SELECT run_id, regexp_extract(topology, '^ring([0-9]{2,})$', 1) AS digits
    FROM runs
), worded AS (  -- a position for each digit of a ring's word
    SELECT run_id, digits, unnest(range(length(digits)))::BIGINT AS position
    FROM letters
), orders AS (
    SELECT run_id, host_ip, host, ring_position AS position, true AS has_direction
    FROM numbered
    WHERE ring_position IS NOT NULL
    UNION ALL
    SELECT w.run_id, host_ip, host, position, false
    FROM worded AS w
    JOIN numbered AS n ON n.run_id = w.run_id AND n.number = substr(digits, position + 1, 1)::BIGINT
    WHERE w.run_id NOT IN (SELECT run_id FROM hosts WHERE ring_position IS NOT NULL)
    QUALIFY count(DISTINCT host_ip) OVER (PARTITION BY w.run_id) = length(digits)
), declared_ring AS (
    SELECT run_id, string_agg(host, ' > ' ORDER BY position) AS declared_ring, count(*) AS size, bool_and(has_direction) AS has_direction
    FROM orders
    GROUP BY run_id
), inferred_ring AS (
    SELECT run_id, bool_or(is_ring) AS is_ring,
           string_agg(coalesce(label, o.host_ip), ' > ' ORDER BY position) AS inferred_ring
    FROM ring_order AS o
    LEFT JOIN hosts USING (run_id, host_ip)
    GROUP BY run_id
), matched AS (  -- edges that both have, wherever the order begins
    SELECT a.run_id, count(*) FILTER (o.host_ip = a.host_ip AND o.next_host_ip = b.host_ip) AS forward,
           count(*) FILTER (o.host_ip = b.host_ip AND o.next_host_ip = a.host_ip) AS backward
    FROM orders AS a
    JOIN declared_ring USING (run_id)
    JOIN orders AS b ON b.run_id = a.run_id AND b.position = (a.position + 1) % size
    JOIN ring_order AS o ON o.run_id = a.run_id AND o.is_ring
    GROUP BY a.run_id
), compared AS (
    SELECT run_id, runs.topology AS declared_topology,
           coalesce(w.topology, CASE WHEN runs.topology IS NULL AND declared_ring IS NOT NULL THEN 'ring' END) AS declared_as,
           t.topology AS inferred_topology, t.hosts, is_ring, declared_ring, inferred_ring, has_direction,
           ranks_per_host > 1 AS has_groups,
           CASE WHEN declared_ring IS NULL OR NOT is_ring THEN NULL
                WHEN forward = size AND size = coalesce(t.hosts, size) THEN 'same'
                WHEN backward = size AND size = coalesce(t.hosts, size) THEN 'opposite'
                ELSE 'different' END AS ring_order,
           CASE WHEN runs.topology IS NULL AND declared_ring IS NULL THEN 'no topology is declared'
                WHEN declared_as IS NULL THEN 'the declared word is not known'
                WHEN t.topology = 'unknown' THEN t.problem END AS problem
    FROM runs
    JOIN topology AS t USING (run_id)
    LEFT JOIN topology_words AS w ON regexp_full_match(lower(replace(runs.topology, '-', '_')), pattern)
    LEFT JOIN inferred_ring USING (run_id)
    LEFT JOIN declared_ring USING (run_id)
    LEFT JOIN matched USING (run_id)
)
SELECT run_id, declared_topology, declared_as, inferred_topology, is_ring, declared_ring, inferred_ring, ring_order,
       CASE WHEN problem IS NULL
            THEN (EXISTS (FROM same_traffic AS s WHERE s.declared_as = c.declared_as AND s.topology = inferred_topology
                                                   AND hosts BETWEEN fewest_hosts AND most_hosts)
                  OR (has_groups IS TRUE AND declared_as = 'hierarchical_ring' AND inferred_topology = 'ring'))
                 AND (ring_order IS NULL OR ring_order = 'same' OR (ring_order = 'opposite' AND NOT has_direction))
       END AS agrees, problem
FROM compared AS c
ORDER BY run_id
