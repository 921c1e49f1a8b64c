-- question: What does the graph of the pairs that carry a run's exchange look like?
-- subject: topology
-- row: a run and a level of topology_edges
-- inputs: pair_payload, topology_edges, topology_rings
-- column: run_id
-- column: level from topology_rings
-- column: hosts hosts; hosts with an edge
-- column: links links; undirected pairs of hosts
-- column: edges edges; directed pairs of hosts
-- column: matched_share share; part of the run's payload on the edges
-- column: evenness ratio; payload of the lightest edge over that of the heaviest
-- column: irregularity ratio; mean irregularity of the edges (pair_payload), weighted by payload; null without steps
-- column: is_connected; whether links lead from each host to every other
-- column: all_mutual; whether every link has edges in both directions
-- column: least_balance ratio; smaller over larger direction of a link, the least of all links; 0 where a link has one direction
-- column: max_degree links; most links of a host
-- column: max_outs edges; most edges that leave a host
-- column: max_ins edges; most edges that enter a host
-- column: hub; host with a link to every other one, the first by address; null where there is none
-- column: hubs hosts; number of such hosts
-- column: is_bipartite; whether there are two parties, and each link goes from one to the other
-- column: opposite hosts; hosts with a link to the first host
-- column: same hosts; all others, the first host among them
-- column: core_hosts hosts; hosts of the core; null without a core
-- column: max_core_degree links; most links within the core of a host
-- column: min_leaves hosts; fewest leaves of a host of the core
-- column: usual_leaves hosts; most frequent number of leaves of a host of the core
-- column: odd_groups hosts; hosts of the core with another number of leaves
-- column: is_cube; whether the core is a hypercube
-- column: core_spread ratio; heaviest over lightest link within the core
-- column: is_led; as in topology_rings
-- column: is_grid; as in topology_rings
-- column: groups groups; as in topology_rings
-- The core is the graph without leaves, the hosts with a single link. A hypercube (Mulder 1979) is connected, has 2^d
-- hosts of degree d, and any two of them have no or two common neighbours.
WITH RECURSIVE edges AS MATERIALIZED (
    SELECT run_id, level, src_ip AS x, dst_ip AS y, payload_bytes::DOUBLE AS bytes, irregularity
    FROM topology_edges
), links AS MATERIALIZED (  -- undirected, a < b
    SELECT run_id, level, least(x, y) AS a, greatest(x, y) AS b, sum(bytes) AS bytes, count(*) = 2 AS is_mutual,
           CASE WHEN count(*) = 2 THEN min(bytes) / max(bytes) ELSE 0 END AS balance
    FROM edges
    GROUP BY ALL
), neighbours AS MATERIALIZED (
    SELECT run_id, level, a AS x, b AS y FROM links
    UNION ALL
    SELECT run_id, level, b, a FROM links
), sent AS (
    SELECT run_id, level, x, count(*) AS outs FROM edges GROUP BY ALL
), received AS (
    SELECT run_id, level, y AS x, count(*) AS ins FROM edges GROUP BY ALL
), nodes AS MATERIALIZED (
    SELECT run_id, level, x, count(*) AS degree, coalesce(any_value(outs), 0) AS outs, coalesce(any_value(ins), 0) AS ins
    FROM neighbours
    LEFT JOIN sent USING (run_id, level, x)
    LEFT JOIN received USING (run_id, level, x)
    GROUP BY ALL
), node_sizes AS (
    SELECT run_id, level, count(*) AS n, max(degree) AS max_degree,
           max(outs) AS max_outs, max(ins) AS max_ins,
           min(x) AS first_x
    FROM nodes
    GROUP BY ALL
), link_sizes AS (
    SELECT run_id, level, count(*) AS e, bool_and(is_mutual) AS all_mutual, min(balance) AS least_balance
    FROM links
    GROUP BY ALL
), edge_sizes AS (
    SELECT run_id, level, count(*) AS m, sum(bytes) AS matched_bytes, min(bytes) / max(bytes) AS evenness,
           sum(irregularity * bytes) / sum(bytes) AS irregularity
    FROM edges
    GROUP BY ALL
), reached AS (
    SELECT run_id, level, first_x AS x FROM node_sizes
    UNION
    SELECT run_id, level, y FROM reached JOIN neighbours USING (run_id, level, x)
), reach AS (
    SELECT run_id, level, count(*) AS reached_count FROM reached GROUP BY ALL
), parties AS (  -- both sides, if the graph is bipartite and complete: the first host's neighbours and the others
    SELECT n.run_id, n.level, n.x, y IS NOT NULL AS is_opposite
    FROM nodes AS n
    JOIN node_sizes AS s USING (run_id, level)
    LEFT JOIN neighbours AS o ON o.run_id = n.run_id AND o.level = n.level AND o.x = s.first_x AND o.y = n.x
), bipartite AS (
    SELECT run_id, level, bool_and(p.is_opposite <> q.is_opposite) AS is_bipartite
    FROM links
    JOIN parties AS p USING (run_id, level)
    JOIN parties AS q USING (run_id, level)
    WHERE p.x = a AND q.x = b
    GROUP BY ALL
), party_sizes AS (
    SELECT run_id, level, count(*) FILTER (is_opposite) AS opposite, count(*) FILTER (NOT is_opposite) AS same
    FROM parties
    GROUP BY ALL
), core AS MATERIALIZED (  -- what is left without hosts that hang on a single other one
    SELECT run_id, level, x, y
    FROM neighbours
    JOIN nodes AS n USING (run_id, level, x)
    JOIN nodes AS o ON o.run_id = n.run_id AND o.level = n.level AND o.x = y
    WHERE n.degree > 1 AND o.degree > 1
), core_nodes AS (
    SELECT run_id, level, x, count(*) AS core_degree FROM core GROUP BY ALL
), hanging AS (  -- leaves at each host of the core
    SELECT c.run_id, c.level, c.x, core_degree, degree - core_degree AS leaves_here
    FROM core_nodes AS c
    JOIN nodes USING (run_id, level, x)
), core_sizes AS (
    SELECT run_id, level, count(*) AS core_n, min(core_degree) AS min_core_degree, max(core_degree) AS max_core_degree,
           min(leaves_here) AS min_leaves, max(leaves_here) AS max_leaves, mode(leaves_here) AS usual_leaves
    FROM hanging
    GROUP BY ALL
), odd_groups AS (
    SELECT run_id, level, count(*) AS odd_count
    FROM hanging
    JOIN core_sizes USING (run_id, level)
    WHERE leaves_here <> usual_leaves
    GROUP BY ALL
), regular AS (  -- where the core may be a hypercube: 2^d hosts of degree d
    SELECT run_id, level
    FROM core_sizes
    WHERE core_n >= 4 AND min_core_degree = max_core_degree AND core_n = 2 ** max_core_degree AND max_leaves <= 1
), shared_neighbours AS (
    SELECT p.run_id, p.level, p.x, q.x AS z, count(*) AS common
    FROM core AS p
    JOIN regular USING (run_id, level)
    JOIN core AS q ON q.run_id = p.run_id AND q.level = p.level AND q.y = p.y AND q.x > p.x
    GROUP BY ALL
), cubes AS (  -- Mulder 1979: connected, degree d, 2^d hosts, any two with no common neighbour or two
    SELECT run_id, level, min(common) = 2 AND max(common) = 2 AS is_cube
    FROM shared_neighbours
    GROUP BY ALL
), cube_links AS (
    SELECT l.run_id, l.level, max(bytes) / min(bytes) AS spread
    FROM links AS l
    JOIN core AS c ON c.run_id = l.run_id AND c.level = l.level AND c.x = a AND c.y = b
    GROUP BY ALL
), hubs AS (  -- hosts with a link to every other one
    SELECT run_id, level, count(*) FILTER (degree = n - 1) AS hub_count, min(x) FILTER (degree = n - 1) AS hub
    FROM nodes
    JOIN node_sizes USING (run_id, level)
    GROUP BY ALL
), totals AS (
    SELECT run_id, sum(payload_bytes) AS total_bytes
    FROM pair_payload
    GROUP BY run_id
)
SELECT run_id, level, n AS hosts, e AS links, m AS edges, matched_bytes / total_bytes AS matched_share, evenness,
       irregularity, coalesce(reached_count = n, false) AS is_connected, all_mutual, least_balance,
       max_degree, max_outs, max_ins, hub, hub_count AS hubs, is_bipartite, opposite, same,
       core_n AS core_hosts, max_core_degree, min_leaves, usual_leaves, coalesce(odd_count, 0) AS odd_groups,
       coalesce(is_cube, false) AS is_cube, spread AS core_spread,
       coalesce(is_led, false) AS is_led, coalesce(is_grid, false) AS is_grid, groups
FROM node_sizes
JOIN link_sizes USING (run_id, level)
JOIN edge_sizes USING (run_id, level)
JOIN reach USING (run_id, level)
JOIN bipartite USING (run_id, level)
JOIN party_sizes USING (run_id, level)
JOIN hubs USING (run_id, level)
JOIN totals USING (run_id)
LEFT JOIN core_sizes USING (run_id, level)
LEFT JOIN odd_groups USING (run_id, level)
LEFT JOIN cubes USING (run_id, level)
LEFT JOIN cube_links USING (run_id, level)
LEFT JOIN topology_rings USING (run_id, level)
ORDER BY run_id, level
