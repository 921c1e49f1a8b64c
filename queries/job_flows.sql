-- question: Which flows carry the data of which training job?
-- subject: collectives
-- row: a run and a flow with the data of a job
-- inputs: inferred_jobs
-- column: run_id
-- column: job
-- column: flow_id; flow, as in flows
-- column: step_bytes bytes; payload of the flow in a step; of an unequal all-to-all all that it has, for its steps differ
-- Flows of control messages alone, as the other direction of gloo's connections, belong to no job.
SELECT run_id, job, flow_id, step_bytes
FROM (SELECT run_id, job, unnest(flows, max_depth := 2) FROM inferred_jobs)
ORDER BY run_id, job, flow_id
