-- question: Which runs have parameter servers, and are the steps of their workers known?
-- subject: servers
-- row: a run with a parameter server
-- inputs: hosts, steps, parameter_servers, parameter_server_flows, parameter_server_steps
-- column: run_id
-- column: servers hosts; number of parameter servers
-- column: known_by; how the servers are known: role or traffic (parameter_servers)
-- column: workers hosts; hosts with the role worker that are no server, else those that exchange data with a server
-- column: workers_with_data hosts; workers that exchange data with a server
-- column: workers_with_log hosts; those of them with a log
-- column: steps_from; log: each worker's own; chief: for some worker the chief's; traffic: inferred (parameter_server_steps); null where they are not known
-- column: problem; why their steps are not known; null where they are
WITH server_hosts AS (
    FROM parameter_servers
), servers AS (
    SELECT run_id, count(*) AS servers, any_value(known_by) AS known_by
    FROM server_hosts
    GROUP BY run_id
), declared AS (
    SELECT run_id, count(*) AS workers
    FROM hosts
    ANTI JOIN server_hosts USING (run_id, host_ip)
    WHERE role = 'worker'
    GROUP BY run_id
), peers AS (
    SELECT DISTINCT run_id, worker_ip, worker
    FROM parameter_server_flows
), logged AS (
    SELECT run_id, count(*) AS peers,
           count(*) FILTER (steps_from = 'log') AS peers_with_log, count(steps_from) AS peers_with_steps,
           min(steps_from) FILTER (steps_from <> 'log') AS others_from
    FROM peers
    LEFT JOIN (SELECT DISTINCT run_id, worker, steps_from FROM parameter_server_steps) USING (run_id, worker)
    GROUP BY run_id
)
SELECT run_id, servers, known_by, coalesce(declared.workers, peers, 0) AS workers,
       coalesce(peers, 0) AS workers_with_data, coalesce(peers_with_log, 0) AS workers_with_log,
       CASE WHEN peers = peers_with_log THEN 'log' WHEN peers = peers_with_steps THEN others_from END AS steps_from,
       CASE WHEN run_id NOT IN (SELECT run_id FROM steps) THEN 'no training log: steps are not known'
            WHEN peers IS NULL THEN 'no data between workers and parameter servers in steps'
            WHEN peers_with_steps < peers
                THEN 'no log of ' || (peers - peers_with_steps) || ' of the ' || peers
                     || ' workers that exchange data with a parameter server: their steps are not known'
       END AS problem
FROM servers
LEFT JOIN declared USING (run_id)
LEFT JOIN logged USING (run_id)
ORDER BY run_id
