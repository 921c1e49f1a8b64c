-- question: In which pattern do the hosts of a run exchange what they compute?
-- row: a run
-- inputs: runs, hosts, pair_payload, topology_edges, topology_shapes, pair_turns
-- figure: zerwas fig. 4, farhat section 3
-- Inferred from payload inside steps alone: the shape of the graph of the pairs that carry the exchange, how even they
-- are, how regular from step to step and, for what looks alike, when each pair sends. Each shape is tested for
-- exactly, on the first level of topology_edges on which one fits; docs/topology.md says how, and what no traffic can
-- tell apart. It is unknown where no shape fits, or where the pairs that fit carry less than 0.93 of the payload (0.75
-- without steps). confidence is matched_share, the payload's part on the matched pairs, lessened by a fifth without
-- steps, and halved where other shapes would send the same: two hosts, and four in a square without times. root_ip:
-- centre of a star or binary_tree_star, root of a tree; there all links are first used towards it. turn: 0 where both
-- directions of a link begin to send together, about half where one follows the other. runner_up: of ring, star, tree
-- and clique the other one that comes nearest, with the part of the payload that its best pairs carry. level,
-- core_hosts, smaller_party and groups are what the law of the exchange depends on (exchange_laws).
WITH RECURSIVE pairs AS MATERIALIZED (
    FROM pair_payload
), edges AS MATERIALIZED (
    FROM topology_edges
), times AS MATERIALIZED (
    FROM pair_turns
), totals AS (
    SELECT run_id, sum(payload_bytes) AS total_bytes, any_value(by_steps) AS by_steps, max(steps) AS steps
    FROM pairs
    GROUP BY run_id
), turns AS (  -- of the links' both directions
    SELECT e.run_id, e.level,
           avg(abs(here.first_after_ms - back.first_after_ms))
               / nullif(max(here.last_after_ms) - min(here.first_after_ms), 0) AS turn
    FROM edges AS e
    JOIN times AS here USING (run_id, src_ip, dst_ip)
    JOIN times AS back ON back.run_id = e.run_id AND back.src_ip = e.dst_ip AND back.dst_ip = e.src_ip
    GROUP BY e.run_id, e.level
), shaped AS MATERIALIZED (
    SELECT s.*, by_steps, steps, turn,
        CASE
            WHEN hosts = 2 THEN CASE WHEN edges = 2 THEN CASE WHEN turn >= 0.25 THEN 'star' ELSE 'ring' END END
            WHEN is_connected AND edges = hosts AND max_outs = 1 AND max_ins = 1 THEN 'ring'
            WHEN all_mutual AND links = hosts - 1 AND max_degree = hosts - 1 THEN 'star'
            WHEN irregularity >= 0.75 AND steps >= 3 AND links >= hosts THEN 'pair_averaging'
            WHEN is_led AND is_connected AND (links >= hosts OR least_balance < 0.75) THEN 'hierarchical_ring'
            WHEN all_mutual AND links = hosts - 1 AND is_connected AND least_balance >= 0.75
                THEN CASE WHEN usual_leaves >= 2 AND min_leaves >= 1 AND (min_leaves >= 2 OR core_hosts >= 3)
                               AND odd_groups <= 1 AND max_core_degree <= 3
                          THEN 'binary_tree_star'
                          ELSE 'tree' END
            WHEN all_mutual AND links = hosts * (hosts - 1) / 2
                THEN CASE WHEN by_steps OR evenness >= 0.8 THEN 'clique' ELSE 'pair_averaging' END
            WHEN is_cube AND all_mutual AND is_connected
                THEN CASE WHEN hosts = 4 AND turn >= 0.25 THEN 'sharded_parameter_server'
                          WHEN core_spread >= 1.5 THEN 'halving_doubling'
                          ELSE 'recursive_doubling' END
            WHEN all_mutual AND is_bipartite AND opposite >= 2 AND same >= 2 AND links = opposite * same
                THEN 'sharded_parameter_server'
            WHEN all_mutual AND hubs >= 2 AND links = hubs * (hubs - 1) / 2 + hubs * (hosts - hubs)
                THEN 'sharded_parameter_server'
            WHEN is_grid AND is_connected THEN 'hierarchical_ring'
            WHEN all_mutual AND hubs = 1 AND hosts >= 4 AND links = 2 * hosts - 4 THEN 'binary_tree_star'
        END AS shape
    FROM topology_shapes AS s
    JOIN totals USING (run_id)
    LEFT JOIN turns USING (run_id, level)
), fitting AS (
    SELECT *
    FROM shaped
    WHERE shape IS NOT NULL
      AND matched_share >= CASE WHEN by_steps THEN 0.93 ELSE 0.75 END
    QUALIFY row_number() OVER (PARTITION BY run_id ORDER BY level) = 1
), scattered AS (  -- too many pairs for any shape, each in some steps only
    SELECT * EXCLUDE shape, 'pair_averaging' AS shape
    FROM shaped
    WHERE level = 6 AND hosts >= 3 AND irregularity >= 0.75 AND steps >= 3 AND links >= hosts
), matched AS MATERIALIZED (
    FROM fitting
    UNION ALL
    FROM scattered WHERE run_id NOT IN (SELECT run_id FROM fitting)
), rooted_links AS MATERIALIZED (  -- of what has a root, in both directions
    SELECT run_id, e.src_ip AS x, e.dst_ip AS y
    FROM edges AS e
    JOIN matched AS m USING (run_id, level)
    WHERE shape IN ('star', 'tree', 'binary_tree_star')
), paths AS (
    SELECT run_id, x AS origin, x, y, 1 AS length FROM rooted_links
    UNION
    SELECT p.run_id, origin, l.x, l.y, length + 1
    FROM paths AS p
    JOIN matched AS m ON m.run_id = p.run_id AND links = hosts - 1
    JOIN rooted_links AS l ON l.run_id = p.run_id AND l.x = p.y AND l.y <> p.x
), depths AS (
    SELECT run_id, origin AS x, sum(length) AS distances
    FROM paths
    GROUP BY ALL
), called AS (  -- part of a host's links on which the other one sends first
    SELECT l.run_id, x, avg((i.first_after_ms < o.first_after_ms)::INTEGER) AS asked_first
    FROM rooted_links AS l
    LEFT JOIN times AS o ON o.run_id = l.run_id AND o.src_ip = x AND o.dst_ip = y
    LEFT JOIN times AS i ON i.run_id = l.run_id AND i.src_ip = y AND i.dst_ip = x
    GROUP BY l.run_id, x
), roots AS (
    SELECT d.run_id, d.x AS root_ip
    FROM depths AS d
    JOIN matched AS m USING (run_id)
    LEFT JOIN called AS c USING (run_id, x)
    LEFT JOIN hosts AS h ON h.run_id = d.run_id AND h.host_ip = d.x
    QUALIFY row_number() OVER (
        PARTITION BY d.run_id
        ORDER BY coalesce(d.x = hub AND hosts > 2, false) DESC,
                 asked_first DESC NULLS LAST, distances, rank NULLS LAST, d.x
    ) = 1
), ends AS (
    SELECT run_id, src_ip AS x, payload_bytes FROM pairs
    UNION ALL
    SELECT run_id, dst_ip, payload_bytes FROM pairs
), best_ring AS (
    SELECT run_id, sum(payload_bytes) AS bytes
    FROM (SELECT run_id, max(payload_bytes) AS payload_bytes FROM pairs GROUP BY run_id, src_ip)
    GROUP BY run_id
), best_star AS (
    SELECT run_id, max(bytes) AS bytes
    FROM (SELECT run_id, sum(payload_bytes) AS bytes FROM ends GROUP BY run_id, x)
    GROUP BY run_id
), ranked_links AS (
    SELECT run_id, sum(payload_bytes) AS bytes,
           row_number() OVER (PARTITION BY run_id ORDER BY sum(payload_bytes) DESC) AS place
    FROM pairs
    GROUP BY run_id, least(src_ip, dst_ip), greatest(src_ip, dst_ip)
), host_counts AS (
    SELECT run_id, count(DISTINCT x) AS present FROM ends GROUP BY run_id
), best_tree AS (
    SELECT run_id, sum(bytes) AS bytes
    FROM ranked_links
    JOIN host_counts USING (run_id)
    WHERE place < present
    GROUP BY run_id
), best_clique AS (  -- as far as all pairs carry the same
    SELECT run_id, sum(least(payload_bytes, even_bytes)) AS bytes
    FROM (
        SELECT run_id, payload_bytes, total_bytes / (present * (present - 1)) AS even_bytes
        FROM pairs
        JOIN totals USING (run_id)
        JOIN host_counts USING (run_id)
    )
    GROUP BY run_id
), candidates AS (
    SELECT run_id, 'ring' AS shape, bytes FROM best_ring
    UNION ALL
    SELECT run_id, 'star', bytes FROM best_star
    UNION ALL
    SELECT run_id, 'tree', bytes FROM best_tree
    UNION ALL
    SELECT run_id, 'clique', bytes FROM best_clique
), runners_up AS (
    SELECT c.run_id, c.shape AS runner_up, bytes / total_bytes AS runner_up_share
    FROM candidates AS c
    JOIN totals USING (run_id)
    LEFT JOIN matched AS m USING (run_id)
    WHERE c.shape IS DISTINCT FROM m.shape
    QUALIFY row_number() OVER (PARTITION BY c.run_id ORDER BY bytes DESC, c.shape) = 1
)
SELECT run_id, coalesce(shape, 'unknown') AS topology,
       coalesce(matched_share
                * CASE WHEN m.by_steps THEN 1 ELSE 0.8 END
                * CASE WHEN hosts = 2 OR (NOT m.by_steps AND shape IN ('clique', 'pair_averaging'))
                            OR (turn IS NULL AND hosts = 4 AND shape IN ('recursive_doubling', 'sharded_parameter_server'))
                       THEN 0.5 ELSE 1 END, 0) AS confidence,
       CASE WHEN shape IN ('star', 'tree', 'binary_tree_star') THEN root_ip END AS root_ip,
       hosts, edges, matched_share, evenness, irregularity, turn, t.by_steps, runner_up, runner_up_share,
       level, core_hosts,
       CASE WHEN shape = 'sharded_parameter_server' AND is_bipartite THEN least(opposite, same) END AS smaller_party,
       CASE WHEN shape = 'hierarchical_ring' THEN groups END AS groups
FROM runs
LEFT JOIN matched AS m USING (run_id)
LEFT JOIN roots USING (run_id)
LEFT JOIN totals AS t USING (run_id)
LEFT JOIN runners_up USING (run_id)
ORDER BY run_id
