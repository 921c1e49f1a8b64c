-- question: Which runs have parameter servers, and can the phases of their steps be separated?
-- row: a run with a parameter server
-- inputs: hosts, steps, parameter_servers, parameter_server_flows
-- figure: chang section 2 (synchronous training with n servers and w workers)
-- column: run_id; run
-- column: servers hosts; number of parameter servers
-- column: known_by; how the servers are known: role or traffic (parameter_servers)
-- column: workers hosts; hosts with the role worker that are no server, else those that exchange data with a server
-- column: workers_with_data hosts; workers that exchange data with a server
-- column: workers_with_log hosts; those of them with a log
-- column: common_share share; part of the steps in which all of them are in the step at the same time
-- column: problem; why phases cannot be separated; null where they can
-- Phases can be separated where every worker that exchanges data has a log, and in at least half of the steps all of
-- them are in the same step at the same time.
WITH thresholds AS (
    SELECT 0.5 AS least_common_share  -- of the steps: with fewer in common the training is asynchronous
), server_hosts AS (
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
           count(*) FILTER ((run_id, worker) IN (SELECT (run_id, worker) FROM steps)) AS peers_with_log
    FROM peers
    GROUP BY run_id
), together AS (  -- is there a time at which all are in the step?
    SELECT run_id, step, max(start_ns) < min(end_ns) AND count(*) = any_value(logged.peers) AS is_common
    FROM steps
    JOIN peers USING (run_id, worker)
    JOIN logged USING (run_id)
    GROUP BY run_id, step
), common AS (
    SELECT run_id, avg(is_common::INTEGER) AS common_share
    FROM together
    GROUP BY run_id
)
SELECT run_id, servers, known_by, coalesce(declared.workers, peers, 0) AS workers,
       coalesce(peers, 0) AS workers_with_data, coalesce(peers_with_log, 0) AS workers_with_log,
       common_share,
       CASE WHEN run_id NOT IN (SELECT run_id FROM steps) THEN 'no training log: steps are not known'
            WHEN peers IS NULL THEN 'no data between workers and parameter servers in steps'
            WHEN peers_with_log < peers
                THEN 'no log of ' || (peers - peers_with_log) || ' of the ' || peers
                     || ' workers that exchange data with a parameter server: their steps are not known'
            WHEN common_share < least_common_share THEN 'asynchronous: workers are seldom in the same step at the same time'
       END AS problem
FROM servers
LEFT JOIN declared USING (run_id)
LEFT JOIN logged USING (run_id)
LEFT JOIN common USING (run_id)
CROSS JOIN thresholds
ORDER BY run_id
