-- question: Which host is each worker of the logs?
-- row: a run and a label
-- inputs: hosts
-- A label of several addresses is the first of them.
SELECT run_id, label AS worker, min(host_ip) AS host_ip
FROM hosts
WHERE label IS NOT NULL
GROUP BY run_id, label
ORDER BY run_id, worker
