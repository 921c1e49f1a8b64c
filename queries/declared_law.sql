-- question: How many model sizes does a declared collective send in a step?
-- subject: topology
-- row: the collective that is declared; no row for a word that is not known, and where no law gives a number
-- inputs: topology_words, collective_laws
-- param: word VARCHAR = NULL; topology as declared, in any of the words of topology_words
-- param: worker_hosts BIGINT > 0 = NULL; workers that train
-- param: worker_ranks BIGINT > 0 = 1; ranks on each of these hosts; several have a law in a ring, a hierarchical_ring (a group a host) and a star
-- param: server_hosts BIGINT = 0; parameter servers besides them; a declared parameter server is one at least
-- column: topology; topology in the terms of the query topology, or parameter_server
-- column: law from collective_laws
-- column: law_factor ratio; payload of a step over all pairs of hosts, over the bytes S that a step exchanges, above 0
-- Of several laws the one that the word means where nothing else is known: every worker takes part in each step, a clique
-- sends all to all, no byte goes twice. Workers with parameter servers send and receive the model: 2w for w workers (chang
-- 2018), which is the star of a server and its workers.
WITH declared AS (
    SELECT topology, topology IN ('parameter_server', 'sharded_parameter_server', 'star') AS may_have_servers,
           greatest(coalesce($server_hosts, 0), CASE WHEN topology = 'parameter_server' THEN 1 ELSE 0 END) AS servers
    FROM topology_words
    WHERE regexp_full_match(replace(lower($word), '-', '_'), pattern)
), exchanges AS (
    SELECT topology, CASE WHEN topology = 'parameter_server' THEN if(servers > 1, 'sharded_parameter_server', 'star') ELSE topology END AS exchange,
           $worker_hosts + if(may_have_servers, servers, 0) AS hosts,
           CASE WHEN may_have_servers AND servers > 0 THEN least(servers, $worker_hosts) END AS smaller_party,
           CASE WHEN may_have_servers AND servers > $worker_hosts THEN 'more servers than workers'
                WHEN may_have_servers AND servers > 0 THEN 'fewer servers than workers'
                ELSE 'servers on workers' END AS sharded_law
    FROM declared
)
SELECT e.topology, law, total_factor AS law_factor
FROM exchanges AS e
JOIN LATERAL (
    FROM collective_laws(hosts := e.hosts, core_hosts := (2 ** floor(log2(e.hosts)))::BIGINT, ranks := $worker_ranks,
                         smaller_party := e.smaller_party)
) AS l ON l.topology = e.exchange
WHERE total_factor > 0 AND ($worker_ranks = 1 OR e.exchange IN ('ring', 'hierarchical_ring', 'star'))
      AND CASE e.exchange WHEN 'star' THEN law = if($worker_ranks > 1, 'every rank in each step', 'every worker in each step')
                          WHEN 'ring' THEN law = if($worker_ranks > 1, 'ring of all ranks', 'minimum volume') WHEN 'clique' THEN law = 'all to all'
                          WHEN 'pair_averaging' THEN law = 'one model for each worker'
                          WHEN 'sharded_parameter_server' THEN law = sharded_law
                          ELSE law IN ('minimum volume', 'whole buffer between pairs') END
ORDER BY e.topology, law
