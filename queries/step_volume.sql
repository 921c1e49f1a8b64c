-- question: How much is transmitted in each training step?
-- subject: volume
-- row: a run and a step
-- inputs: step_flows
-- figure: zerwas section VI
-- column: run_id
-- column: step; number of the training step, from 0
-- column: wire_bytes bytes; wire bytes of all flows in the step
-- column: payload_bytes bytes; payload of these flows
-- Steps are those of the logs. Without a log inferred_steps and job_steps have the bytes of the steps that the traffic shows.
SELECT run_id, step, sum(wire_bytes)::BIGINT AS wire_bytes,
       CASE WHEN count(payload_bytes) = count(*) THEN sum(payload_bytes) END::BIGINT AS payload_bytes
FROM step_flows
WHERE position = 'during'
GROUP BY run_id, step
ORDER BY run_id, step
