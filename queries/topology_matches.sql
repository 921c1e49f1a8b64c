-- question: Which shape does the graph of the pairs that carry a run's exchange have?
-- subject: topology
-- row: a run
-- inputs: runs, pair_payload, topology_edges, topology_shapes, topology_candidates, pair_turns, collective_laws, several_patterns, parallel_connections
-- column: run_id from pair_payload
-- column: topology; topology of that shape; unknown where no shape fits, or the run has several patterns or exchanges
-- column: centre_ip; centre of a star or of a binary_tree_star with links to all others; null for other shapes
-- column: hosts hosts; hosts that take part in the exchange; null where no shape fits, as all columns of the shape
-- column: edges edges; directed pairs that carry the exchange
-- column: matched_share share; part of the payload that these pairs carry
-- column: evenness ratio; payload of the lightest of them over that of the heaviest
-- column: irregularity ratio; mean irregularity of the pairs (pair_payload), weighted by payload
-- column: turn ratio; how far the two directions of a link begin after each other: 0 together, about 0.5 one after the other; null without times
-- column: by_steps; whether only payload inside steps counts (pair_payload)
-- column: runner_up; of ring, star, tree and clique the other one that comes nearest (topology_candidates)
-- column: runner_up_share share; part of the payload that its best pairs carry; no shape is tested, so that more than matched_share does not make it the better one
-- column: level; level of topology_edges on which the shape fits
-- column: core_hosts hosts; hosts without those that have a single link
-- column: smaller_party hosts; sharded_parameter_server: hosts of the smaller party; null where servers are workers, too
-- column: groups groups; hierarchical_ring: number of groups
-- Inferred from payload inside steps alone: the shape of the graph of the pairs that carry the exchange, how even they
-- are, how regular from step to step and, for shapes that look alike, when each pair sends. Each shape is tested
-- exactly, on the first level of topology_edges on which one fits; docs/topology.md has the tests, and what no traffic
-- can distinguish. The limits are in `thresholds`. level, core_hosts, smaller_party and groups determine the law of the
-- exchange (exchange_laws). The query topology adds the root, how far the law holds, and the confidence.
WITH thresholds AS (
    SELECT 0.93 AS matched_in_steps,          -- of the payload inside steps: what the pairs of a shape carry, at least
           0.75 AS matched_of_all,            -- the same without steps: a start-up broadcast is in the payload
           0.25 AS turn_taking,               -- turn of links whose directions follow each other; together is about 0
           0.75 AS averaging_irregularity,    -- of pairs that send in some steps only; regular pairs have about 0
           3 AS averaging_steps,              -- an irregularity of fewer steps shows nothing
           0.75 AS tree_balance,              -- of a link with the same data both ways, headers and acknowledgements aside
           0.8 AS clique_evenness,            -- without steps: pairs of a clique are this even, of pair averaging are not
           1.5 AS halving_spread,             -- heaviest over lightest link: 1 in doubling, 2 and more in halving
           6 AS scattered_level               -- level of topology_edges on which pair averaging is recognised
), edges AS MATERIALIZED (
    FROM topology_edges
), times AS MATERIALIZED (
    FROM pair_turns
), totals AS (
    SELECT run_id, any_value(by_steps) AS by_steps, max(steps) AS steps
    FROM pair_payload
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
            WHEN hosts = 2 THEN CASE WHEN edges = 2 THEN 'unknown' END  -- every topology is this one link
            WHEN is_connected AND edges = hosts AND max_outs = 1 AND max_ins = 1 THEN 'ring'
            WHEN all_mutual AND links = hosts - 1 AND max_degree = hosts - 1 THEN 'star'
            WHEN irregularity >= averaging_irregularity AND steps >= averaging_steps AND links >= hosts THEN 'pair_averaging'
            WHEN is_led AND is_connected AND (links >= hosts OR least_balance < tree_balance) THEN 'hierarchical_ring'
            WHEN all_mutual AND links = hosts - 1 AND is_connected AND least_balance >= tree_balance
                THEN CASE WHEN usual_leaves >= 2 AND min_leaves >= 1 AND (min_leaves >= 2 OR core_hosts >= 3)
                               AND odd_groups <= 1 AND max_core_degree <= 3
                          THEN 'binary_tree_star'
                          ELSE 'tree' END
            WHEN all_mutual AND links = hosts * (hosts - 1) / 2
                THEN CASE WHEN by_steps OR evenness >= clique_evenness THEN 'clique' ELSE 'pair_averaging' END
            WHEN is_cube AND all_mutual AND is_connected
                THEN CASE WHEN hosts = 4 AND turn >= turn_taking THEN 'sharded_parameter_server'
                          WHEN core_spread >= halving_spread THEN 'halving_doubling'
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
    CROSS JOIN thresholds
), fitting AS (
    SELECT shaped.*
    FROM shaped
    CROSS JOIN thresholds
    WHERE shape IS NOT NULL
      AND matched_share >= CASE WHEN by_steps THEN matched_in_steps ELSE matched_of_all END
    QUALIFY row_number() OVER (PARTITION BY run_id ORDER BY level) = 1
), scattered AS (  -- too many pairs for any shape, each in some steps only
    SELECT shaped.* EXCLUDE shape, 'pair_averaging' AS shape
    FROM shaped
    CROSS JOIN thresholds
    WHERE level = scattered_level AND hosts >= 3 AND irregularity >= averaging_irregularity AND steps >= averaging_steps
      AND links >= hosts
), matched AS MATERIALIZED (
    FROM fitting
    UNION ALL
    FROM scattered WHERE run_id NOT IN (SELECT run_id FROM fitting)
), single AS (
    FROM matched
    WHERE run_id NOT IN (SELECT run_id FROM several_patterns)
      AND run_id NOT IN (SELECT run_id FROM parallel_connections WHERE several_exchanges)
), runners_up AS (
    SELECT c.run_id, c.candidate AS runner_up, c.payload_share AS runner_up_share
    FROM topology_candidates AS c
    LEFT JOIN matched AS m USING (run_id)
    WHERE c.candidate IS DISTINCT FROM m.shape
    QUALIFY row_number() OVER (PARTITION BY c.run_id ORDER BY c.place) = 1
)
SELECT run_id, coalesce(shape, 'unknown') AS topology,
       CASE WHEN shape IN (SELECT topology FROM collective_laws() WHERE is_rooted) THEN hub END AS centre_ip,
       hosts, edges, matched_share, evenness, irregularity, turn, t.by_steps, runner_up, runner_up_share,
       level, core_hosts,
       CASE WHEN shape = 'sharded_parameter_server' AND is_bipartite THEN least(opposite, same) END AS smaller_party,
       CASE WHEN shape = 'hierarchical_ring' THEN groups END AS groups
FROM runs
LEFT JOIN single AS m USING (run_id)
LEFT JOIN totals AS t USING (run_id)
LEFT JOIN runners_up USING (run_id)
ORDER BY run_id
