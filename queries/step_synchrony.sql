-- question: Do the workers of a run wait for each other in each step?
-- subject: steps
-- row: a run with a training log
-- inputs: steps, program_events, hosts, parameter_servers
-- figure: zerwas section II-A (synchronous and asynchronous training)
-- column: run_id
-- column: workers hosts; workers with a log; parameter servers and a chief do not count
-- column: worker_steps steps; mean number of steps in a worker's log
-- column: compared_steps steps; steps in the logs of two or more of them
-- column: common_share share; part of these steps in which no worker is done before the last one has begun; null with one worker, or without times
-- column: measured_by; events: start and end of communication; logs: start and end of the step, which shows less
-- column: is_asynchronous; whether the logs show that workers do not wait; null as common_share
-- column: is_shifted; whether a restart left steps out of a log, so that some of these steps have other numbers in other logs
-- In a synchronous step every worker needs the gradients of all others, so nobody can end its communication before the
-- last worker has begun its own. Asynchronous workers drift apart, and common_share falls. Events count where every
-- compared step has some of each worker. By logs alone, workers that drift by less than a step still look synchronous.
-- Workers that have no step in common (numbered by the server's updates) do not wait for each other either.
-- A worker that is killed may not have logged its last step; after the restart its steps have lower numbers than the others'.
-- So where a run was killed and logs end at different numbers, a step is also common if it is so counted from the last.
WITH thresholds AS (
    SELECT 0.9 AS least_common_share  -- of the compared steps; clocks and damaged logs cost a few
), servers AS (
    FROM parameter_servers
), others AS (
    SELECT run_id, label
    FROM hosts
    LEFT JOIN servers USING (run_id, host_ip)
    WHERE role IN ('parameter_server', 'chief') OR servers.host_ip IS NOT NULL
), communication AS (
    SELECT run_id, worker, step, min(start_ns) AS start_ns, max(end_ns) AS end_ns
    FROM program_events
    WHERE kind IN ('communicate', 'allreduce')
    GROUP BY ALL
), worker_steps AS (
    SELECT s.run_id, s.worker, s.step, s.start_ns, s.end_ns, c.start_ns AS communication_start_ns,
           c.end_ns AS communication_end_ns, max(s.step) OVER (PARTITION BY s.run_id, s.worker) AS last_step
    FROM steps AS s
    ANTI JOIN others AS o ON o.run_id = s.run_id AND o.label = s.worker
    LEFT JOIN communication AS c ON c.run_id = s.run_id AND c.worker = s.worker AND c.step = s.step
), logged AS (
    SELECT run_id, count(DISTINCT worker) AS workers, count(*) / workers AS worker_steps
    FROM worker_steps
    GROUP BY run_id
), shifted AS (
    SELECT run_id
    FROM worker_steps
    WHERE run_id IN (SELECT run_id FROM program_events WHERE kind IN ('process_killed', 'host_killed'))
    GROUP BY run_id
    HAVING min(last_step) < max(last_step)
), from_last AS (
    SELECT run_id, last_step - step AS steps_after, max(start_ns) < min(end_ns) AS is_common,
           max(communication_start_ns) <= min(communication_end_ns) AS is_common_by_events
    FROM worker_steps
    SEMI JOIN shifted USING (run_id)
    GROUP BY run_id, steps_after
    HAVING count(*) > 1
), compared AS (
    SELECT w.run_id, step, max(start_ns) < min(end_ns) AS is_common_by_number,
           max(communication_start_ns) <= min(communication_end_ns) AS is_common_by_events_and_number,
           is_common_by_number OR bool_and(coalesce(l.is_common, false)) AS is_common,
           is_common_by_events_and_number OR bool_and(coalesce(l.is_common_by_events, false)) AS is_common_by_events,
           count(communication_start_ns) = count(*) AS has_events
    FROM worker_steps AS w
    LEFT JOIN from_last AS l ON l.run_id = w.run_id AND l.steps_after = w.last_step - w.step
    GROUP BY w.run_id, step
    HAVING count(*) > 1
), counted AS (
    SELECT run_id, count(*) AS compared_steps, bool_and(has_events) AS has_events,
           avg((CASE WHEN has_events THEN is_common_by_events END)::INTEGER) AS by_events, avg(is_common::INTEGER) AS by_logs,
           avg((CASE WHEN has_events THEN is_common_by_events_and_number ELSE is_common_by_number END)::INTEGER) AS by_number
    FROM compared
    GROUP BY run_id
)
SELECT run_id, workers, worker_steps, coalesce(compared_steps, 0) AS compared_steps,
       CASE WHEN workers > 1 AND compared_steps IS NULL THEN 0 WHEN has_events THEN by_events ELSE by_logs END AS common_share,
       CASE WHEN compared_steps > 0 THEN CASE WHEN has_events THEN 'events' ELSE 'logs' END END AS measured_by,
       common_share < least_common_share AS is_asynchronous,
       run_id IN (FROM shifted) AND coalesce(by_number < common_share, false) AS is_shifted
FROM logged
LEFT JOIN counted USING (run_id)
CROSS JOIN thresholds
ORDER BY run_id
