-- question: What does each worker do when, in its steps and in the events inside them?
-- subject: timelines
-- row: a step or an event of a worker that is in the excerpt, if only in part
-- inputs: steps, program_events, timeline_start, timeline_lanes
-- param: from_ms DOUBLE = 0; start of the excerpt, ms since the run's start
-- param: length_ms DOUBLE > 0 = NULL; how much time from there on, ms; NULL: to the end
-- column: run_id
-- column: lane; number of the lane, as in timeline_lanes
-- column: worker; label of the worker
-- column: level; 0 for a step, 1 for an event
-- column: step from steps
-- column: kind; step, or the kind of the event: compute, forward, backward, communicate, allreduce, update
-- column: name; layer or tensor of the event; null for steps
-- column: since_start_ns ns; start since the run's start (timeline_start)
-- column: duration_ns ns; duration of the interval
-- column: is_nested; whether one lane can show it with the others of its worker
-- column: epoch; epoch of a step, from 0; null for events
-- column: loss; training loss of a step; null for events
-- column: accuracy share; training accuracy of a step; null for events
-- column: bytes bytes; payload that an event had to move; null for steps and where the program does not state it
-- column: priority; priority of a scheduled transfer, lower goes first; null for steps
-- is_nested holds for a step that overlaps no other step, and an event within such a step that overlaps no other event
-- of it.
WITH chosen_steps AS (
    SELECT run_id, worker, step, epoch, start_ns, end_ns, loss, accuracy,
           coalesce(start_ns >= max(end_ns) OVER (by_start ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), true)
               AND coalesce(end_ns <= lead(start_ns) OVER by_start, true) AS is_nested
    FROM steps
    WINDOW by_start AS (PARTITION BY run_id, worker ORDER BY start_ns, end_ns, step)
), chosen_events AS (
    SELECT e.run_id, e.worker, e.step, e.kind, e.name, e.start_ns, e.end_ns, e.bytes, e.priority,
           coalesce(s.is_nested AND e.start_ns >= s.start_ns AND e.end_ns <= s.end_ns, false)
               AND coalesce(e.start_ns >= max(e.end_ns) OVER (by_start ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), true)
               AND coalesce(e.end_ns <= lead(e.start_ns) OVER by_start, true) AS is_nested
    FROM program_events AS e
    LEFT JOIN chosen_steps AS s USING (run_id, worker, step)
    WINDOW by_start AS (PARTITION BY e.run_id, e.worker, e.step ORDER BY e.start_ns, e.end_ns, e.kind, e.name)
), intervals AS (
    SELECT run_id, worker, 0 AS level, 'step' AS kind, NULL AS name, step, epoch, start_ns, end_ns, loss, accuracy,
           NULL::BIGINT AS bytes, NULL::BIGINT AS priority, is_nested
    FROM chosen_steps
    UNION ALL
    SELECT run_id, worker, 1, kind, name, step, NULL, start_ns, end_ns, NULL, NULL, bytes, priority, is_nested
    FROM chosen_events
), placed AS (
    SELECT i.*, lane, start_ns - run_start_ns AS since_start_ns, end_ns - start_ns AS duration_ns
    FROM intervals AS i
    JOIN timeline_start USING (run_id)
    JOIN timeline_lanes USING (run_id, worker)
)
SELECT run_id, lane, worker, level::BIGINT AS level, step, kind, name, since_start_ns, duration_ns,
       is_nested, epoch, loss, accuracy, bytes, priority
FROM placed
WHERE (since_start_ns >= $from_ms * 1e6 OR since_start_ns + duration_ns > $from_ms * 1e6)
  AND ($length_ms IS NULL OR since_start_ns < ($from_ms + $length_ms) * 1e6)
ORDER BY run_id, since_start_ns, duration_ns DESC, lane, level, step, kind, name
