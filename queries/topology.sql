-- question: In which pattern do the hosts of a run exchange what they compute?
-- subject: topology
-- row: a run
-- inputs: topology_matches, topology_volumes, topology_roots, several_patterns, parallel_connections, unknown_payload
-- figure: zerwas fig. 4, farhat section 3
-- answer: topology, confidence, problem
-- column: run_id
-- column: topology; inferred topology; unknown where no shape fits, or the run has several patterns or exchanges; of a chosen communicator with several rings, or several trees, what all of them are
-- column: confidence share; of topologies inferred with this confidence, so many are right (docs/topology.md has the table); 0 where it is unknown; null for several rings or trees of a chosen communicator: query collectives has the confidence of each
-- column: root_ip
-- column: root_confidence
-- column: towards_root_share
-- column: hosts
-- column: edges
-- column: matched_share
-- column: misplaced_share share; part of their payload that is on other pairs than the law would have it (topology_volumes)
-- column: volume_ratio ratio; their payload over what the law must move (topology_volumes); null without model_bytes or a log
-- column: idle_hosts hosts; workers and parameter servers of the job that take no part in the exchange
-- column: evenness
-- column: irregularity
-- column: turn
-- column: by_steps
-- column: runner_up
-- column: runner_up_share
-- column: level
-- column: core_hosts
-- column: smaller_party
-- column: groups
-- column: problem; why the topology is unknown; null where it is known
-- Inferred from payload inside steps alone: the shape of the graph of the pairs that carry the exchange
-- (topology_matches), and whether they send what the law of that shape makes them send (topology_volumes).
-- The confidence is logistic in the evidence against the topology: payload on other pairs than those of the shape
-- (matched_share) and in other proportions than its law has (misplaced_share), a volume other than the law's
-- (volume_ratio), workers that take no part (idle_hosts), pairs that send in some steps only (irregularity), and
-- what could not be examined. benchmarks/topology_confidence.py fits the weights on other runs than those of the tables in docs/topology.md.
WITH weights AS (
    SELECT 5.9 AS certain,               -- all evidence is there, none is against the topology
           17 AS unmatched,              -- times the payload on other pairs
           16 AS misplaced,              -- times misplaced_share, up to 0.3
           2.1 AS without_proportions,   -- the law fixes only the sum
           2.2 AS less_volume,           -- times the logarithm of volume_ratio below 1, up to 3
           0.8 AS more_volume,           -- the same above 1: another training, fewer bytes declared than sent
           0.6 AS without_volume,        -- no model_bytes or no log
           1.6 AS idle,                  -- some hosts are idle
           8.2 AS irregular,             -- times the irregularity, up to 0.5; of pair averaging it is no evidence
           2.5 AS alike_without_steps,   -- without steps a clique and pair averaging look alike
           3.3 AS few_hosts,             -- over hosts - 1: small graphs look alike
           0.5 AS trust_of_two_shapes    -- factor where two shapes send the same: four in a square without times
), evidence AS (
    SELECT topology_matches.*, misplaced_share, volume_ratio, idle_hosts,
           certain - unmatched * (1 - matched_share)
           - CASE WHEN misplaced_share IS NULL THEN without_proportions ELSE misplaced * least(misplaced_share, 0.3) END
           - CASE WHEN volume_ratio IS NULL THEN without_volume
                  ELSE CASE WHEN volume_ratio < 1 THEN less_volume ELSE more_volume END * least(abs(ln(volume_ratio)), 3) END
           - CASE WHEN idle_hosts > 0 THEN idle ELSE 0 END
           - CASE WHEN topology = 'pair_averaging' THEN 0 ELSE irregular * least(coalesce(irregularity, 0), 0.5) END
           - CASE WHEN topology IN ('clique', 'pair_averaging') AND NOT by_steps THEN alike_without_steps ELSE 0 END
           - few_hosts / (hosts - 1) AS log_odds
    FROM topology_matches
    LEFT JOIN topology_volumes USING (run_id)
    CROSS JOIN weights
)
SELECT run_id, coalesce(several.topology, evidence.topology) AS topology,
       CASE WHEN several.topology IS NOT NULL THEN NULL
            WHEN evidence.topology = 'unknown' THEN 0
            WHEN hosts = 4 AND turn IS NULL AND evidence.topology IN ('recursive_doubling', 'sharded_parameter_server')
            THEN trust_of_two_shapes / (1 + exp(-log_odds))
            ELSE 1 / (1 + exp(-log_odds)) END AS confidence,
       root_ip, root_confidence, towards_root_share, hosts, edges, matched_share, misplaced_share, volume_ratio, idle_hosts,
       evenness, irregularity, turn, by_steps, runner_up, runner_up_share, level, core_hosts, smaller_party, groups,
       CASE WHEN several.topology IS NOT NULL THEN NULL
            WHEN communicators > 0 THEN several.problem
            WHEN several_exchanges
            THEN format('more than one exchange, as of another training or copies of files ({} of {} pairs carry a second one; see parallel_connections and jobs, and choose one with --param job=N)',
                        shared_pairs, pairs)
            WHEN hosts = 2 THEN 'two hosts: every topology is the one link between them'
            WHEN u.problem IS NOT NULL THEN u.problem
            WHEN by_steps IS NULL THEN 'no payload between hosts'
            WHEN evidence.topology = 'unknown' THEN 'no shape fits the pairs that carry the exchange' END AS problem
FROM evidence
CROSS JOIN weights
LEFT JOIN topology_roots USING (run_id)
LEFT JOIN several_patterns AS several USING (run_id)
LEFT JOIN parallel_connections USING (run_id)
LEFT JOIN unknown_payload AS u USING (run_id)
ORDER BY run_id
