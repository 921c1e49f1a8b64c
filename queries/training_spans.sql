-- question: From when to when does each host take part in the training, by its log?
-- subject: runs
-- row: a host of a run with a log
-- inputs: hosts, steps, logged_steps
-- column: run_id
-- column: host_ip
-- column: worker; label of the host's log; null where it has none
-- column: start_ns ns since the epoch, UTC; start of the first step in its log; where it has none, the first start in any log
-- column: end_ns ns since the epoch, UTC; end of the last step in its log; where it has none, the last end in any log
WITH logs AS (
    SELECT run_id, worker, min(start_ns) AS start_ns, max(end_ns) AS end_ns
    FROM steps
    GROUP BY run_id, worker
)
SELECT h.run_id, host_ip, worker, coalesce(o.start_ns, r.start_ns) AS start_ns, coalesce(o.end_ns, r.end_ns) AS end_ns
FROM hosts AS h
JOIN logged_steps AS r USING (run_id)
LEFT JOIN logs AS o ON o.run_id = h.run_id AND o.worker = h.label
ORDER BY h.run_id, host_ip
