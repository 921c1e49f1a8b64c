-- question: What becomes of a training when a process or a host of it is killed, and what does a checkpoint save?
-- subject: delays
-- row: a run in which something was killed on purpose
-- inputs: runs, run_attributes, steps, events, hosts
-- figure: cheng section 4.4
-- answer: killed, finished, recovery_s
-- column: run_id from run_attributes
-- column: framework_backend
-- column: topology
-- column: workers
-- column: killed; label of the host
-- column: role; its role (hosts.role)
-- column: what; process (of the training alone) or host (also what would start it again)
-- column: is_restarted; whether all processes had to be started again from outside
-- column: checkpoint_steps steps; steps of training in the checkpoint that was read back; null where none was
-- column: planned_steps steps; steps that the training was to do
-- column: steps_before steps; steps that were done when it was killed
-- column: steps_done steps; all steps that were done, those that were lost too
-- column: lost_steps steps; of these the ones that were done again: steps_done - planned_steps; null where it did not finish
-- column: finished; whether all planned steps were done
-- column: recovery_s s; from the kill to the end of the first step that began after it, or after a restart; null where there was none
-- column: step_ms ms; median step before the kill
-- column: workers_after hosts; workers that log their steps and did one after the kill
-- Steps are those of the worker that did most: a step's number counts the steps done before it, also by a process that
-- was started again. The training finished where that worker did all steps that were left: those after the checkpoint,
-- or without one, where its processes were started again, all steps. The time that a person needs to start the training
-- again is not in recovery_s: the testbed does it at once.
WITH kills AS (
    SELECT run_id, min(start_ns) AS killed_ns, arg_min(name, start_ns) AS killed,
           arg_min(regexp_replace(kind, '_killed$', ''), start_ns) AS what
    FROM events
    WHERE kind IN ('process_killed', 'host_killed')
    GROUP BY run_id
), later AS (
    SELECT run_id, bool_or(kind = 'restart' AND name = 'all') AS is_restarted, bool_or(kind = 'restart') AS begins_anew,
           min(start_ns) FILTER (kind = 'restart') AS first_restart_ns, max(start_ns) FILTER (kind = 'restart') AS last_restart_ns,
           arg_max(nullif(regexp_extract(name, '^steps (\d+)$', 1), '')::BIGINT, start_ns) FILTER (kind = 'restore') AS checkpoint_steps
    FROM events
    WHERE kind IN ('restart', 'restore')
    GROUP BY run_id
), timed AS (
    SELECT *, end_ns <= killed_ns AS is_before,
           -- without phases a step begins where the one before it ended, so that only its end tells
           CASE WHEN begins_anew THEN end_ns > first_restart_ns ELSE start_ns > killed_ns END AS is_after,
           end_ns > last_restart_ns AS is_after_last
    FROM steps
    JOIN kills USING (run_id)
    LEFT JOIN later USING (run_id)
), by_worker AS (
    SELECT run_id, worker, count(*) AS steps_done, count(*) FILTER (is_before) AS steps_before,
           count(*) FILTER (is_after) AS steps_after, count(*) FILTER (is_after_last) AS steps_after_last,
           median((end_ns - start_ns) / 1e6) FILTER (is_before) AS step_ms,
           min(end_ns) FILTER (is_after) AS next_end_ns
    FROM timed
    GROUP BY ALL
), of_run AS (
    SELECT run_id, max(steps_done) AS steps_done, max(steps_before) AS steps_before,
           max(steps_after_last) AS steps_after_last, count(*) FILTER (steps_after > 0) AS workers_after,
           max(step_ms) AS step_ms, min(next_end_ns) AS next_end_ns
    FROM by_worker
    GROUP BY run_id
), judged AS (
    SELECT *, CASE WHEN begins_anew THEN steps_after_last ELSE steps_done END >= planned_steps - coalesce(checkpoint_steps, 0) AS finished
    FROM runs
    LEFT JOIN of_run USING (run_id)
    LEFT JOIN later USING (run_id)
)
SELECT run_id, framework_backend, a.topology, a.workers, killed, role, what, coalesce(is_restarted, false) AS is_restarted,
       checkpoint_steps, planned_steps, steps_before, steps_done,
       CASE WHEN finished THEN steps_done - planned_steps END AS lost_steps, finished,
       (next_end_ns - killed_ns) / 1e9 AS recovery_s, step_ms, workers_after
FROM kills
JOIN judged USING (run_id)
JOIN (SELECT run_id, framework_backend, topology, workers FROM run_attributes) AS a USING (run_id)
LEFT JOIN (SELECT run_id, label AS killed, any_value(role) AS role FROM hosts GROUP BY ALL) USING (run_id, killed)
ORDER BY run_id
