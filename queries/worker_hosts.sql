-- question: Which host belongs to each worker of the logs?
-- subject: runs
-- row: a run and a label
-- inputs: hosts
-- column: run_id
-- column: worker; label of the worker
-- column: host_ip; address of the host; of several with the label the first as text
SELECT run_id, label AS worker, min(host_ip) AS host_ip
FROM hosts
WHERE label IS NOT NULL
GROUP BY run_id, label
ORDER BY run_id, worker
