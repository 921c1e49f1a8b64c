-- question: From when to when was each run captured, and when did it train?
-- row: a run that has windows
-- inputs: flow_windows, steps
-- first_ns to last_ns: the base windows of all packets. begin_ns to end_ns: the training, from the first step's begin to
-- the last step's end of any worker, cut to the capture; where there is no log, or one on another clock that does not
-- meet the traffic, the capture, as span_source says.
WITH capture AS (
    SELECT run_id, max(window_ns) AS base_ns, min(window_start_ns) AS first_ns, max(window_start_ns) + base_ns AS last_ns
    FROM flow_windows
    GROUP BY run_id
), training AS (
    SELECT run_id, min(start_ns) AS start_ns, max(end_ns) AS stop_ns
    FROM steps
    GROUP BY run_id
)
SELECT capture.run_id, base_ns, first_ns, last_ns,
       coalesce(greatest(start_ns, first_ns), first_ns) AS begin_ns,
       coalesce(least(stop_ns, last_ns), last_ns) AS end_ns,
       CASE WHEN start_ns IS NULL THEN 'capture' ELSE 'training' END AS span_source
FROM capture
LEFT JOIN training ON training.run_id = capture.run_id AND start_ns < last_ns AND stop_ns > first_ns
ORDER BY capture.run_id
