-- question: How much payload must the algorithm of a run move in a step, for each byte of the model?
-- subject: topology
-- row: a run and a law that its exchange may follow; one row with a null law where the topology is unknown
-- inputs: runs, topology_matches, collective_laws
-- column: run_id from topology_matches
-- column: topology; inferred topology
-- column: level; level of topology_edges on which it was found
-- column: hosts hosts; N, hosts that take part in the exchange
-- column: law; name of the law; null where the topology is unknown
-- column: total_factor ratio; payload of a step over all pairs, over the bytes S that a step exchanges
-- The laws are those of collective_laws. Where several laws fit a topology, the measurement decides (conservation).
-- runs.ranks_per_host, where it is declared, is the ranks of each host.
WITH shapes AS MATERIALIZED (
    SELECT m.*, coalesce(ranks_per_host, 1) AS ranks
    FROM topology_matches AS m
    JOIN runs USING (run_id)
), laws AS (
    SELECT run_id, law, total_factor
    FROM shapes AS s
    JOIN LATERAL (
        FROM collective_laws(hosts := s.hosts, core_hosts := s.core_hosts, ranks := s.ranks, smaller_party := s.smaller_party, groups := s.groups)
    ) AS l ON l.topology = s.topology AND total_factor IS NOT NULL
)
SELECT run_id, topology, level, hosts, law, total_factor
FROM shapes
LEFT JOIN laws USING (run_id)
ORDER BY run_id, law
