-- question: When does each iteration of a run begin and end?
-- subject: steps
-- row: a run and a step of one worker
-- inputs: steps, figure_runs
-- param: first_step BIGINT = 0; the first step of the excerpt
-- param: step_count BIGINT > 0 = NULL; how many steps from there on; NULL: all
-- param: by_worker VARCHAR = NULL; label of the worker whose log gives the marks; NULL: the run's first, worker-2 before worker-10
-- param: runs BIGINT = NULL; only this many runs, in the order of figure_runs; NULL: all
-- figure: farhat section 3 (marks of the iterations)
-- column: run_id
-- column: worker; label of the worker
-- column: step
-- column: epoch
-- column: start_ns
-- column: end_ns ns since the epoch, UTC; its end
-- column: since_run_ms ms; start of the step since the start of the worker's first step
-- column: begin_ms ms; start of the step since the start of the excerpt's first step
-- column: end_ms ms; its end since then
-- Each worker's log has marks of its own; those of a synchronous run are close together.
WITH chosen AS (
    SELECT *
    FROM steps
    WHERE run_id IN (SELECT run_id FROM figure_runs WHERE $runs IS NULL OR place <= $runs)
      AND ($by_worker IS NULL OR worker = $by_worker)
    QUALIFY dense_rank() OVER (PARTITION BY run_id ORDER BY length(worker), worker) = 1
), timed AS (
    SELECT *, min(start_ns) OVER (PARTITION BY run_id) AS training_ns
    FROM chosen
), excerpt AS (
    SELECT *, min(start_ns) OVER (PARTITION BY run_id) AS excerpt_ns
    FROM timed
    WHERE step >= $first_step AND ($step_count IS NULL OR step < $first_step + $step_count)
)
SELECT run_id, worker, step, epoch, start_ns, end_ns,
       (start_ns - training_ns) / 1e6 AS since_run_ms,
       (start_ns - excerpt_ns) / 1e6 AS begin_ms,
       (end_ns - excerpt_ns) / 1e6 AS end_ms
FROM excerpt
ORDER BY run_id, worker, step
