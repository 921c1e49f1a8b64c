-- question: From when to when was each run captured, and when did it train?
-- subject: runs
-- row: a run that has windows
-- inputs: flow_windows, logged_steps
-- column: run_id
-- column: base_ns ns; length of a base window
-- column: first_ns ns since the epoch, UTC; start of the first base window with a packet
-- column: last_ns ns since the epoch, UTC; end of the last one
-- column: begin_ns ns since the epoch, UTC; start of the training: the first step's start of any worker, not before first_ns
-- column: end_ns ns since the epoch, UTC; end of the training: the last step's end of any worker, not after last_ns
-- column: span_source; training, or capture: begin_ns and end_ns are first_ns and last_ns
-- span_source is capture where there is no log, or where the log is on another clock and its steps share no time with
-- the traffic.
WITH capture AS (
    SELECT run_id, max(window_ns) AS base_ns, min(window_start_ns) AS first_ns, max(window_start_ns) + base_ns AS last_ns
    FROM flow_windows
    GROUP BY run_id
), training AS (
    SELECT run_id, start_ns, end_ns AS stop_ns
    FROM logged_steps
)
SELECT capture.run_id, base_ns, first_ns, last_ns,
       coalesce(greatest(start_ns, first_ns), first_ns) AS begin_ns,
       coalesce(least(stop_ns, last_ns), last_ns) AS end_ns,
       CASE WHEN start_ns IS NULL THEN 'capture' ELSE 'training' END AS span_source
FROM capture
LEFT JOIN training ON training.run_id = capture.run_id AND start_ns < last_ns AND stop_ns > first_ns
ORDER BY capture.run_id
