-- question: What must each collective move in a step, and how do its pairs of hosts share it?
-- subject: topology
-- row: a topology and a law that its exchange may follow
-- inputs: none
-- param: hosts BIGINT > 0 = NULL; N, hosts that take part in the exchange; without it no factor is computed
-- param: core_hosts BIGINT > 0 = NULL; c, hosts without those that have a single link, for recursive_doubling
-- param: ranks BIGINT > 0 = 1; L, ranks of the exchange on each host
-- param: smaller_party BIGINT > 0 = NULL; servers or workers, the fewer; null where servers are workers, too
-- param: groups BIGINT > 0 = NULL; groups of a hierarchical_ring
-- column: topology; topology in the terms of the query topology
-- column: words; regular expression of the words that declare it, in lower case, with _ for -; null for unknown
-- column: is_rooted; whether one host is the root or the centre
-- column: law; name of the law
-- column: total_factor ratio; payload of a step over all pairs, over the bytes S that a step exchanges; null where the law does not hold for these numbers
-- column: partner_ratio ratio; payload that a host sends to its next partner, over that to the one before, the heaviest first; null where the law fixes only the sum of all pairs
-- column: server_ratio ratio; payload between two hosts that have links to all, over that of other pairs: servers on workers
-- column: most_edges edges; with more directed pairs the law fixes only the sum: a star with a tree over it; null without such a limit
-- This is the only place of a law in SQL; ddnn_traces/traffic/collectives.py makes the transfers that follow it, and a test
-- compares both. total_factor is 2(N-1) for every all-reduce that moves the minimum volume: a ring (2(N-1)/N*S per worker;
-- Patarasuk and Yuan 2009), tree and star (S to and from each other host), halving and doubling (Rabenseifner 2004), rings
-- of rings. It is 2w for w workers with parameter servers of their own (chang 2018: 2mw), c*log2(c) + 2(N-c) for recursive
-- doubling on a hypercube of c, N(N-1) where all send all to all, N for pair averaging.
-- A ring of all NL ranks that goes through one host after the other crosses from host to host N times. Each crossing has
-- 2(NL-1)/(NL)*S, all together 2(N-1/L)*S. Where one rank of a host speaks for all (hierarchical all-reduce), the law is that of one rank a host.
WITH topologies(topology, words, is_rooted, most_edges) AS (
    VALUES ('ring', 'ring[0-9]*', false, NULL),
           ('tree', 'tree', true, NULL),
           ('star', 'star', true, NULL),
           ('sharded_parameter_server', 'sharded_parameter_server|sharded_ps', false, NULL),
           ('binary_tree_star', 'binary_?tree_?star|bts', true, 2 * ($hosts - 1)),
           ('clique', 'clique', false, NULL),
           ('recursive_doubling', 'recursive_?doubling|rec_?doubling|rd', false, NULL),
           ('halving_doubling', 'halving_?doubling|rabenseifner|hd', false, NULL),
           ('pair_averaging', 'pair_?averaging|pairavg|gossip', false, NULL),
           ('hierarchical_ring', 'hierarchical_?ring', false, NULL),
           ('unknown', NULL, false, NULL)
), laws(topology, law, total_factor, partner_ratio, server_ratio) AS (
    VALUES ('ring', 'minimum volume', 2 * ($hosts - 1), 1, 1),
           ('ring', 'ring of all ranks', CASE WHEN $ranks > 1 THEN 2 * ($hosts - 1 / $ranks) END, 1, 1),
           ('tree', 'minimum volume', 2 * ($hosts - 1), 1, 1),
           ('star', 'every worker in each step', 2 * ($hosts - 1), 1, 1),
           ('star', 'every rank in each step', CASE WHEN $ranks > 1 THEN 2 * ($hosts - 1) * $ranks END, 1, 1),
           ('star', 'one worker in each step', CASE WHEN $hosts > 2 THEN 2 END, 1, 1),
           ('sharded_parameter_server', 'servers on workers', CASE WHEN $smaller_party IS NULL THEN 2 * ($hosts - 1) END, 1, 2),
           ('sharded_parameter_server', 'fewer servers than workers', 2 * ($hosts - $smaller_party), 1, 1),
           ('sharded_parameter_server', 'more servers than workers',
            CASE WHEN $smaller_party < $hosts - $smaller_party THEN 2 * $smaller_party END, 1, 1),
           ('binary_tree_star', 'minimum volume', 2 * ($hosts - 1), 1, 1),
           ('clique', 'all to all', $hosts * ($hosts - 1), 1, 1),
           ('clique', 'shares to all and back', 2 * ($hosts - 1), 1, 1),
           ('recursive_doubling', 'whole buffer between pairs', $core_hosts * log2($core_hosts) + 2 * ($hosts - $core_hosts), 1, 1),
           ('halving_doubling', 'minimum volume', 2 * ($hosts - 1), 0.5, 1),
           ('pair_averaging', 'one model for each worker', $hosts, NULL, 1),
           ('pair_averaging', 'one model for each worker but one', CASE WHEN $hosts % 2 = 1 THEN $hosts - 1 END, NULL, 1),
           ('hierarchical_ring', 'minimum volume', 2 * ($hosts - 1), NULL, 1),
           ('hierarchical_ring', 'rings, and a broadcast in each group', 2 * ($hosts - 1) + $hosts - $groups, NULL, 1),
           ('unknown', 'two hosts: to the other one and back', CASE WHEN $hosts = 2 THEN 2 END, 1, 1),
           ('unknown', 'two hosts: ring of all ranks', CASE WHEN $hosts = 2 AND $ranks > 1 THEN 2 * (2 - 1 / $ranks) END, 1, 1)
)
SELECT topology, words, is_rooted, law, total_factor::DOUBLE AS total_factor, partner_ratio::DOUBLE AS partner_ratio,
       server_ratio::DOUBLE AS server_ratio, most_edges::BIGINT AS most_edges
FROM laws
JOIN topologies USING (topology)
ORDER BY topology, law
