-- question: How many training steps do the logs of a run have, and from when to when?
-- subject: steps
-- row: a run with a log
-- inputs: steps
-- column: run_id
-- column: steps steps; different steps of all workers
-- column: start_ns ns since the epoch, UTC; start of the first step of any worker
-- column: end_ns ns since the epoch, UTC; end of the last step of any worker
SELECT run_id, count(DISTINCT step) AS steps, min(start_ns) AS start_ns, max(end_ns) AS end_ns
FROM steps
GROUP BY run_id
ORDER BY run_id
