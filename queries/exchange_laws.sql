-- question: How much payload must the algorithm of a run move in a step, for each byte of the model?
-- row: a run and a law that its exchange may follow; one row with a null law where the topology is unknown
-- inputs: topology_matches
-- column: run_id
-- column: topology; inferred topology
-- column: level; level of topology_edges on which it was found
-- column: hosts hosts; N, hosts that take part in the exchange
-- column: law; name of the law; null where the topology is unknown
-- column: total_factor ratio; payload of a step over all pairs, over the bytes S that a step exchanges
-- total_factor is 2(N-1) for every all-reduce that sends no byte twice: a ring (2(N-1)/N*S per worker; Patarasuk and
-- Yuan 2009), tree and star (S to and from each other host), halving and doubling (Rabenseifner 2004), rings of rings.
-- It is 2w for w workers with parameter servers of their own (chang 2018: 2mw), c*log2(c) + 2(N-c) for recursive
-- doubling on a hypercube of c, N(N-1) where all send all to all, N for pair averaging. Where several laws fit a
-- topology, the measurement decides (conservation).
WITH shapes AS MATERIALIZED (
    FROM topology_matches
), laws AS (
    SELECT run_id, 'no byte twice' AS law, 2 * (hosts - 1) AS total_factor
    FROM shapes
    WHERE topology IN ('ring', 'tree', 'binary_tree_star', 'halving_doubling', 'hierarchical_ring')
    UNION ALL
    SELECT run_id, 'rings, and a broadcast in each group', 2 * (hosts - 1) + hosts - groups
    FROM shapes
    WHERE topology = 'hierarchical_ring' AND groups IS NOT NULL
    UNION ALL
    SELECT run_id, 'every worker in each step', 2 * (hosts - 1)
    FROM shapes
    WHERE topology = 'star'
    UNION ALL
    SELECT run_id, 'one worker in each step', 2
    FROM shapes
    WHERE topology = 'star' AND hosts > 2
    UNION ALL
    SELECT run_id, 'all to all', hosts * (hosts - 1)
    FROM shapes
    WHERE topology = 'clique'
    UNION ALL
    SELECT run_id, 'shares to all and back', 2 * (hosts - 1)
    FROM shapes
    WHERE topology = 'clique'
    UNION ALL
    SELECT run_id, 'servers on workers', 2 * (hosts - 1)
    FROM shapes
    WHERE topology = 'sharded_parameter_server' AND smaller_party IS NULL
    UNION ALL
    SELECT run_id, 'fewer servers than workers', 2 * (hosts - smaller_party)
    FROM shapes
    WHERE smaller_party IS NOT NULL
    UNION ALL
    SELECT run_id, 'more servers than workers', 2 * smaller_party
    FROM shapes
    WHERE smaller_party < hosts - smaller_party
    UNION ALL
    SELECT run_id, 'all of it between pairs', core_hosts * log2(core_hosts) + 2 * (hosts - core_hosts)
    FROM shapes
    WHERE topology = 'recursive_doubling'
    UNION ALL
    SELECT run_id, 'one model for each worker', hosts
    FROM shapes
    WHERE topology = 'pair_averaging'
    UNION ALL
    SELECT run_id, 'one model for each worker but one', hosts - 1
    FROM shapes
    WHERE topology = 'pair_averaging' AND hosts % 2 = 1
)
SELECT run_id, topology, level, hosts, law, total_factor::DOUBLE AS total_factor
FROM shapes
LEFT JOIN laws USING (run_id)
ORDER BY run_id, law
