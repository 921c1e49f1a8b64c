-- question: How high is the throughput over all links together from the first to the last step that the traffic shows?
-- subject: throughput
-- row: a run whose traffic shows steps
-- inputs: inferred_steps, flow_windows
-- answer: steps, gbit_per_s
-- column: run_id from inferred_steps
-- column: steps steps; inferred steps
-- column: begin_ns ns since the epoch, UTC; start of the first inferred step
-- column: end_ns ns since the epoch, UTC; end of the last one
-- column: wire_bytes bytes; wire bytes of the base windows that begin between them
-- column: gbit_per_s Gbit/s; wire_bytes over the time between them
-- column: confidence from inferred_steps
-- For a run without a log: total_throughput takes its whole capture, with the time before and after the training in which little is sent.
WITH spans AS (
    SELECT run_id, count(*) AS steps, min(start_ns) AS begin_ns, max(end_ns) AS end_ns, any_value(confidence) AS confidence
    FROM inferred_steps()
    WHERE step IS NOT NULL
    GROUP BY run_id
)
SELECT run_id, any_value(steps) AS steps, any_value(begin_ns) AS begin_ns, any_value(end_ns) AS end_ns, sum(wire_bytes)::BIGINT AS wire_bytes,
       sum(wire_bytes) * 8 / (any_value(end_ns) - any_value(begin_ns)) AS gbit_per_s, any_value(confidence) AS confidence
FROM spans
JOIN flow_windows USING (run_id)
WHERE window_start_ns >= begin_ns AND window_start_ns < end_ns
GROUP BY run_id
ORDER BY run_id
