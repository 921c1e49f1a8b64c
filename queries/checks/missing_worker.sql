-- question: Which workers took part in a run but were not captured?
-- row: a run and a worker, or a run with too few captured hosts (then worker is null)
-- inputs: runs, hosts, captures, flows, steps
-- column: run_id from hosts
-- column: worker; label of the worker; null where the run has too few captured hosts
-- column: host_ip; address of the host; null where it is not known
-- column: problem; what is missing
-- Where every capture is of a known host, a host was captured when it has a capture of its own; else (a mirror port, a
-- simulation) when it sends something. A train_history.log alone is the first worker's; where no host is known to be a
-- worker it is no host's, which is no fault. Inferred steps (worker traffic) are no log.
WITH vantages AS (
    SELECT run_id, bool_and(vantage_ip IS NOT NULL) AS are_known
    FROM captures
    WHERE records > 0
    GROUP BY run_id
), captured AS (
    SELECT DISTINCT run_id, vantage_ip AS host_ip
    FROM captures
    WHERE vantage_ip IS NOT NULL AND run_id IN (SELECT run_id FROM vantages WHERE are_known)
    UNION
    SELECT DISTINCT run_id, src_ip
    FROM flows
    WHERE run_id NOT IN (SELECT run_id FROM vantages WHERE are_known)
), captured_count AS (
    SELECT run_id, count(*) AS captured_hosts
    FROM captured
    GROUP BY run_id
), alone AS (
    SELECT run_id
    FROM (SELECT run_id, min(worker) AS worker FROM steps GROUP BY run_id HAVING count(DISTINCT worker) = 1)
    WHERE worker = 'worker-1' AND run_id NOT IN (SELECT run_id FROM hosts WHERE role = 'worker')
), problems AS (
    SELECT run_id, NULL AS worker, NULL AS host_ip, 'fewer hosts were captured than workers are declared' AS problem
    FROM runs
    LEFT JOIN captured_count USING (run_id)
    WHERE workers > coalesce(captured_hosts, 0)
    UNION ALL
    SELECT run_id, label, host_ip, 'the host is declared to be a worker and was not captured'
    FROM hosts
    ANTI JOIN captured USING (run_id, host_ip)
    WHERE role = 'worker'
    UNION ALL
    SELECT DISTINCT run_id, worker, NULL, 'the worker has a log, and no host has its label'
    FROM steps
    WHERE (run_id, worker) NOT IN (SELECT (run_id, label) FROM hosts WHERE label IS NOT NULL)
      AND run_id IN (SELECT run_id FROM hosts WHERE label IS NOT NULL)
      AND run_id NOT IN (SELECT run_id FROM alone)
      AND worker <> 'traffic'
)
SELECT run_id, worker, host_ip, problem
FROM problems
ORDER BY run_id, worker, host_ip, problem
