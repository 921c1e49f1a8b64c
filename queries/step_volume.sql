-- question: How much is transmitted in each training step?
-- subject: volume
-- row: a run and a step
-- inputs: step_flows
-- figure: zerwas section VI
-- column: run_id
-- column: step; number of the training step, from 0
-- column: wire_bytes bytes; wire bytes of all flows in the step, with headers, acknowledgements and what is sent again
-- column: payload_bytes bytes; payload of these flows
-- wire_bytes has headers, acknowledgements and what is sent again. To cite one number of a run: run_step_volume.
-- Steps are those of the logs; without a log --infer-steps takes those that the traffic shows. docs/questions.md compares the numbers.
SELECT run_id, step, sum(wire_bytes)::BIGINT AS wire_bytes,
       CASE WHEN count(payload_bytes) = count(*) THEN sum(payload_bytes) END::BIGINT AS payload_bytes
FROM step_flows
WHERE position = 'during'
GROUP BY run_id, step
ORDER BY run_id, step
