-- question: In which pattern do the hosts of a run exchange what they compute?
-- row: a run
-- inputs: topology_matches, topology_volumes
-- figure: zerwas fig. 4, farhat section 3
-- column: run_id; run
-- column: topology; inferred topology; unknown where no shape fits
-- column: confidence share; matched_share, less without steps and where other shapes would send the same; 0 where no shape fits
-- column: root_ip; centre of a star or binary_tree_star, root of a tree: all links are first used towards it; null for other shapes
-- column: hosts hosts; hosts that take part in the exchange; null where no shape fits, as all columns of the shape
-- column: edges edges; directed pairs that carry the exchange
-- column: matched_share share; part of the payload that these pairs carry
-- column: misplaced_share share; part of their payload that is on other pairs than the law would have it (topology_volumes)
-- column: volume_ratio ratio; their payload over what the law must move (topology_volumes); null without model_bytes or a log
-- column: idle_hosts hosts; workers and parameter servers of the job that take no part in the exchange
-- column: evenness ratio; payload of the lightest of them over that of the heaviest
-- column: irregularity ratio; mean irregularity of the pairs (pair_payload), weighted by payload
-- column: turn ratio; how far the two directions of a link begin after each other: 0 together, about 0.5 one after the other; null without times
-- column: by_steps; whether only payload inside steps counts (pair_payload)
-- column: runner_up; of ring, star, tree and clique the other one that comes nearest (topology_candidates)
-- column: runner_up_share share; part of the payload that its best pairs carry
-- column: level; level of topology_edges on which the shape fits
-- column: core_hosts hosts; hosts without those that have a single link
-- column: smaller_party hosts; sharded_parameter_server: hosts of the smaller party; null where servers are workers, too
-- column: groups groups; hierarchical_ring: number of groups
-- Inferred from payload inside steps alone: the shape of the graph of the pairs that carry the exchange (topology_matches).
SELECT run_id, topology, coalesce(matched_share, 0) AS confidence, root_ip, hosts, edges, matched_share, misplaced_share, volume_ratio,
       idle_hosts, evenness, irregularity, turn, by_steps, runner_up, runner_up_share, level, core_hosts, smaller_party, groups
FROM topology_matches
LEFT JOIN topology_volumes USING (run_id)
ORDER BY run_id
