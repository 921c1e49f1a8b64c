-- question: Which steps do runs without a log have, as the table steps has those of a log?
-- subject: steps
-- row: a run without a log whose inferred steps are sure (step_sources), and a step
-- inputs: inferred_steps, job_steps, step_sources
-- column: run_id from step_sources
-- column: worker; traffic: steps of all workers
-- column: step from inferred_steps
-- column: epoch; 0
-- column: start_ns ns since the epoch, UTC; end of the step before; of the first step, and where the one before is not found, its first base window with training traffic
-- column: start_source; traffic; estimated of the first step, as of the first of a log, and where the one before is not found
-- column: end_ns ns since the epoch, UTC; last data of the step, as inferred_steps and job_steps have it
-- A dataset that is opened with inferred steps has these rows in its table steps.
WITH found AS (
    SELECT run_id, step, start_ns, end_ns
    FROM inferred_steps()
    SEMI JOIN (SELECT run_id FROM step_sources WHERE found_by = 'pauses') USING (run_id)
    WHERE step IS NOT NULL
    UNION ALL
    SELECT run_id, step, start_ns, end_ns
    FROM job_steps
    SEMI JOIN (SELECT run_id FROM step_sources WHERE found_by = 'bytes') USING (run_id)
)
SELECT run_id, 'traffic' AS worker, step, 0::BIGINT AS epoch,
       CASE WHEN lag(step) OVER in_run = step - 1 THEN lag(end_ns) OVER in_run ELSE start_ns END AS start_ns,
       CASE WHEN lag(step) OVER in_run = step - 1 THEN 'traffic' ELSE 'estimated' END AS start_source, end_ns
FROM found
WINDOW in_run AS (PARTITION BY run_id ORDER BY step)
ORDER BY run_id, step
