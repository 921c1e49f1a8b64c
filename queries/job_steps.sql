-- question: When did the steps of each training job begin and end, by its traffic alone?
-- subject: collectives
-- row: a run, a job and a step of which the captures have all bytes
-- inputs: flow_windows, job_flows, collective_transfers
-- column: run_id from job_flows
-- column: job from job_flows
-- column: step
-- column: start_ns ns since the epoch, UTC; first packet with data of its collectives
-- column: end_ns ns since the epoch, UTC; last such packet
-- column: wire_bytes bytes; wire bytes of the job's flows in the windows from this step's start to the next one's, of the last to its end
-- wire_bytes has the headers of data, but the other direction's acknowledgements only where that carries data of the job, too.
-- What was sent before training may be taken for a part of step 0. A window counts for the step that begins in it. What the
-- hosts compute after their last data is in no packet.
WITH found AS (
    SELECT run_id, job, step, min(first_ns) AS start_ns, max(last_ns) AS end_ns
    FROM collective_transfers
    GROUP BY run_id, job, step
), bounded AS (
    SELECT *, coalesce(lead(start_ns) OVER (PARTITION BY run_id, job ORDER BY step), end_ns + 1) AS until_ns
    FROM found
), sent AS (
    SELECT run_id, job, window_start_ns, any_value(window_ns) AS window_ns, sum(wire_bytes) AS wire_bytes
    FROM flow_windows
    JOIN job_flows USING (run_id, flow_id)
    GROUP BY run_id, job, window_start_ns
), of_steps AS (
    SELECT b.run_id, b.job, step, sum(wire_bytes)::BIGINT AS wire_bytes
    FROM sent AS s
    ASOF JOIN bounded AS b
      ON s.run_id = b.run_id AND s.job = b.job AND s.window_start_ns + s.window_ns > b.start_ns
    WHERE window_start_ns < until_ns
    GROUP BY b.run_id, b.job, step
)
SELECT run_id, job, step, start_ns, end_ns, wire_bytes
FROM bounded
LEFT JOIN of_steps USING (run_id, job, step)
ORDER BY run_id, job, step
