-- question: What did the training program itself log inside its steps?
-- subject: timelines
-- row: an interval inside a step of a worker
-- inputs: events
-- column: run_id from events
-- column: worker from events
-- column: step from events
-- column: kind from events
-- column: name from events
-- column: start_ns from events
-- column: end_ns from events
-- column: bytes from events
-- column: priority from events
-- What profilers recorded beside it is left out: the same collective would count twice.
SELECT run_id, worker, step, kind, name, start_ns, end_ns, bytes, priority
FROM events
WHERE profiler IS NULL
ORDER BY run_id, worker, step, start_ns, kind
