-- question: Which words for a topology are known, and what do they mean?
-- row: a pattern of words
-- inputs: none
-- column: pattern; regular expression of the whole word in lower case, with _ for -
-- column: topology; topology in the terms of the query topology
WITH words(pattern, topology) AS (
    VALUES ('ring[0-9]*', 'ring'), ('star', 'star'), ('tree', 'tree'), ('binary_?tree_?star|bts', 'binary_tree_star'),
           ('clique', 'clique'), ('parameter_?server|ps', 'parameter_server'),
           ('sharded_parameter_server|sharded_ps', 'sharded_parameter_server'),
           ('recursive_?doubling|rec_?doubling|rd', 'recursive_doubling'),
           ('halving_?doubling|rabenseifner|hd', 'halving_doubling'), ('pair_?averaging|pairavg|gossip', 'pair_averaging'),
           ('hierarchical_?ring', 'hierarchical_ring')
)
SELECT pattern, topology
FROM words
ORDER BY topology, pattern
