-- question: Which steps of a worker begin before the one before has ended, or are duplicates?
-- row: a run, a worker and a step, with the end of the step before it
-- inputs: steps
-- column: run_id
-- column: worker; label of the worker
-- column: step
-- column: previous_step; number of the step before
-- column: previous_end_ns ns since the epoch, UTC; end of the step before
-- column: start_ns
-- column: end_ns ns since the epoch, UTC; its end
WITH following AS (
    SELECT run_id, worker, step, start_ns, end_ns,
           lag(step) OVER by_step AS previous_step, lag(end_ns) OVER by_step AS previous_end_ns
    FROM steps
    WINDOW by_step AS (PARTITION BY run_id, worker ORDER BY step, start_ns, end_ns)
)
SELECT run_id, worker, step, previous_step, previous_end_ns, start_ns, end_ns
FROM following
WHERE start_ns < previous_end_ns OR step = previous_step
ORDER BY run_id, worker, step, start_ns, end_ns
