-- question: Which worker starts the communication of each step last, and what does it cost?
-- subject: steps
-- row: a run, a step and a worker; one row with null step and worker for a run without steps of several workers that wait
-- inputs: runs, steps, hosts, worker_hosts, program_events, host_activity
-- column: run_id from steps
-- column: synchronous; whether the workers wait for each other; null with fewer than two workers in the steps
-- column: step; number of the step; null in the row of a run without a wait
-- column: worker; label of the worker; null as step
-- column: begin_ns ns since the epoch, UTC; when the worker starts its communication in the step
-- column: after_first_ms ms; begin_ns since that of the first worker
-- column: slack_ms ms; from begin_ns to that of the last worker
-- column: is_last; whether it is the last worker, of several at a time the first by name
-- column: cost_ms ms; of the step: time by which it would be shorter had the last worker started with the median one
-- column: measured_by; events (of all workers of the step) or windows
-- column: resolution_ms ms; resolution of begin_ns by windows: the base window; null for events
-- A worker starts when its first communicate or allreduce event begins, else with the first base window in which it
-- sends payload in its step after one in which it does not (what is still in its buffer from the step before is no
-- start). synchronous means that in nine steps of ten no worker ends the step before the last worker has started. Where
-- workers do not wait (asynchronous training), or with fewer than two in the log, no worker is last. A parameter server (by
-- its role) is no worker, also where it logs steps: it starts when it has received the gradients.
WITH thresholds AS (
    SELECT 0.9 AS synchronous_share  -- of the steps: in these no worker ends before the last one has started
), worker_steps AS (
    SELECT *
    FROM steps
    WHERE (run_id, worker) NOT IN (SELECT (run_id, label) FROM hosts WHERE role = 'parameter_server' AND label IS NOT NULL)
), by_events AS (
    SELECT run_id, worker, step, min(start_ns) AS start_ns
    FROM program_events
    WHERE kind IN ('communicate', 'allreduce')
    GROUP BY run_id, worker, step
), activity AS (
    SELECT run_id, host_ip, window_ns, stretch_start_ns,
           -- windows that send after one that does not
           sent & ~((sent << 1) | CASE WHEN lag(stretch_start_ns) OVER in_time = stretch_start_ns - 60 * window_ns
                                       THEN lag(sent) OVER in_time >> 59 ELSE 0 END) AS begins
    FROM host_activity()
    WINDOW in_time AS (PARTITION BY run_id, host_ip ORDER BY stretch_start_ns)
), windows AS (
    SELECT run_id, any_value(window_ns) AS window_ns
    FROM activity
    GROUP BY run_id
), stretched AS (
    SELECT run_id, host_ip, worker, step, start_ns, end_ns,
           unnest(range(start_ns // (60 * window_ns), end_ns // (60 * window_ns) + 1)) * 60 * window_ns AS stretch_start_ns
    FROM worker_steps
    JOIN worker_hosts USING (run_id, worker)
    JOIN windows USING (run_id)
), begun AS (
    SELECT run_id, worker, step, stretch_start_ns, window_ns,
           begins & ((1::BIGINT << least(ceil((end_ns - stretch_start_ns) / window_ns), 60)::BIGINT)
                     - (1::BIGINT << greatest(ceil((start_ns - stretch_start_ns) / window_ns), 0)::BIGINT)) AS begins
    FROM stretched
    JOIN activity USING (run_id, host_ip, stretch_start_ns)
    WHERE ceil((end_ns - stretch_start_ns) / window_ns) > ceil((start_ns - stretch_start_ns) / window_ns)
), by_windows AS (  -- the lowest bit: it alone is left of begins & -begins
    SELECT run_id, worker, step, min(stretch_start_ns + bit_count((begins & -begins) - 1) * window_ns) AS start_ns
    FROM begun
    WHERE begins <> 0
    GROUP BY run_id, worker, step
), starts AS (
    SELECT run_id, step, worker, s.end_ns, e.start_ns AS event_ns, w.start_ns AS window_start_ns,
           count(e.start_ns) OVER of_step = count(*) OVER of_step AS has_events
    FROM worker_steps AS s
    LEFT JOIN by_events AS e USING (run_id, worker, step)
    LEFT JOIN by_windows AS w USING (run_id, worker, step)
    WINDOW of_step AS (PARTITION BY run_id, step)
), compared AS (
    SELECT run_id, step, worker, end_ns, has_events,
           CASE WHEN has_events THEN event_ns ELSE window_start_ns END AS begin_ns,
           min(begin_ns) OVER of_step AS first_ns, median(begin_ns) OVER of_step AS median_ns,
           max(begin_ns) OVER of_step AS last_ns, min(end_ns) OVER of_step AS first_end_ns,
           count(begin_ns) OVER of_step AS started
    FROM starts
    WINDOW of_step AS (PARTITION BY run_id, step)
), waiting AS (
    SELECT run_id, avg((last_ns <= first_end_ns)::INTEGER) >= any_value(synchronous_share) AS synchronous
    FROM compared
    CROSS JOIN thresholds
    WHERE started >= 2
    GROUP BY run_id
), slacks AS (
    SELECT *, row_number() OVER (PARTITION BY run_id, step ORDER BY begin_ns DESC, worker) = 1 AS is_last
    FROM compared
    SEMI JOIN (FROM waiting WHERE synchronous) USING (run_id)
    WHERE started >= 2 AND begin_ns IS NOT NULL
)
SELECT runs.run_id, synchronous, step, worker, begin_ns::BIGINT AS begin_ns,
       (begin_ns - first_ns) / 1e6 AS after_first_ms, (last_ns - begin_ns) / 1e6 AS slack_ms, is_last,
       (last_ns - median_ns) / 1e6 AS cost_ms,
       CASE WHEN has_events THEN 'events' WHEN step IS NOT NULL THEN 'windows' END AS measured_by,
       CASE WHEN NOT has_events THEN window_ns / 1e6 END AS resolution_ms
FROM runs
LEFT JOIN waiting USING (run_id)
LEFT JOIN slacks USING (run_id)
LEFT JOIN windows USING (run_id)
ORDER BY runs.run_id, step, worker
