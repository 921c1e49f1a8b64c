-- question: Which collectives make up a step of each training job, in which order, between which hosts, of how many bytes?
-- subject: collectives
-- row: a run, a job and a collective of a step; each ring or tree that runs at once with others is one
-- inputs: jobs, step_collectives
-- answer: job, kind, tensor_bytes, confidence, communicator, hosts, kind_or
-- column: run_id from step_collectives
-- column: job from step_collectives
-- column: position from step_collectives
-- column: communicator from step_collectives
-- column: kind from step_collectives
-- column: kind_or from step_collectives
-- column: evidence from step_collectives
-- column: tensor_bytes from step_collectives
-- column: confidence share; that of step_collectives, times agreed_share of jobs: where the log or pauses show other steps, a collective may be of several steps or a part of one
-- column: algorithm from step_collectives
-- column: channel from step_collectives
-- column: hosts from step_collectives
-- column: steps from step_collectives
-- column: start_ms from step_collectives
-- column: end_ms from step_collectives
-- A send is what no pattern of several hosts explains: a part of one whose pauses were not seen looks the same. What hosts
-- send directly to all others may be an all-to-all, an all-gather or an all-reduce.
-- tensor_bytes is no volume: of N hosts a ring sends 2(N-1) times the bytes of an all-reduce, N-1 times those of an all-gather or a
-- reduce-scatter; gloo's reduce-scatter is sent as an all-reduce. The bytes of a step are in job_steps and step_volume. Each host is taken
-- for one rank. Where a ring goes through L ranks on each of N hosts, its tensor is (1 - 1/N) / (1 - 1/(NL)) of tensor_bytes.
-- On a ring an all-gather and a reduce-scatter send the same, and both together as much as an all-reduce: kind_or says so
-- where neither rounds nor order tell (docs/collectives.md).
SELECT c.* REPLACE (c.confidence * agreed_share AS confidence)
FROM step_collectives AS c
JOIN jobs USING (run_id, job)
ORDER BY run_id, job, "position"
