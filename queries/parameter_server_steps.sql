-- question: From when to when is each step of the workers that exchange data with a parameter server?
-- subject: servers
-- row: a run, a worker that exchanges data with a parameter server, and a step
-- inputs: steps, hosts, parameter_server_flows
-- column: run_id
-- column: worker; label of the worker
-- column: step
-- column: start_ns
-- column: until_ns ns since the epoch, UTC; start of the worker's next step; of its last step the end
-- column: steps_from; log: the worker's own; chief: the log of the run's chief, for a worker without one; traffic: inferred steps of all workers
-- A chief that waits for its workers in each step (TensorFlow's coordinator with join) has all that they exchange in
-- a step between the start and the end of its own; whether it waits, parameter_server_runs examines on the wire. Steps that a
-- chief logs with the end of the step before are parts of that step, and have no row.
WITH workers AS (
    SELECT DISTINCT run_id, worker
    FROM parameter_server_flows
), own AS (
    SELECT run_id, worker, step, start_ns, end_ns, 'log' AS steps_from
    FROM steps
    JOIN workers USING (run_id, worker)
), of_chief AS (
    SELECT s.run_id, step, start_ns, end_ns
    FROM steps AS s
    JOIN hosts AS h ON h.run_id = s.run_id AND h.label = s.worker
    WHERE role = 'chief' AND end_ns > start_ns
    QUALIFY dense_rank() OVER (PARTITION BY s.run_id ORDER BY s.worker) = 1
), inferred AS (  -- only where the dataset is opened with inferred steps (inferred_step_rows)
    SELECT run_id, step, start_ns, end_ns
    FROM steps
    SEMI JOIN (SELECT run_id FROM steps WHERE start_source = 'traffic') USING (run_id)
), known AS (
    FROM own
    UNION ALL BY NAME
    SELECT run_id, worker, step, start_ns, end_ns, 'chief' AS steps_from
    FROM of_chief
    JOIN workers USING (run_id)
    ANTI JOIN own USING (run_id, worker)
    UNION ALL BY NAME
    SELECT run_id, worker, step, start_ns, end_ns, 'traffic' AS steps_from
    FROM inferred
    JOIN workers USING (run_id)
)
SELECT run_id, worker, step, start_ns,
       coalesce(lead(start_ns) OVER (PARTITION BY run_id, worker ORDER BY start_ns, step), end_ns) AS until_ns, steps_from
FROM known
ORDER BY run_id, worker, start_ns, step
