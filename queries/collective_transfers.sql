-- question: What does each flow send for which collective of which step?
-- subject: collectives
-- row: a run, a job, a step, a collective and a flow
-- inputs: flows, inferred_jobs
-- column: run_id from flows
-- column: job; number of the job, as in inferred_jobs
-- column: step; number of the step, from 0: the first of which the captures have all bytes
-- column: position; number of the collective in the step, from 0, in the order in which they begin
-- column: flow_id from flows
-- column: src_ip
-- column: dst_ip
-- column: first_ns ns since the epoch, UTC; first packet of its first message there
-- column: last_ns ns since the epoch, UTC; last packet of its last message there
-- column: bytes bytes; payload
SELECT run_id, job, step, "position", flow_id, src_ip, dst_ip, min(first_ns) AS first_ns, max(last_ns) AS last_ns,
       sum(bytes)::BIGINT AS bytes
FROM (
    SELECT run_id, job, "position", unnest(transfers, max_depth := 2)
    FROM (SELECT run_id, job, unnest(collectives, max_depth := 2) FROM inferred_jobs)
)
JOIN flows USING (run_id, flow_id)
GROUP BY ALL
ORDER BY run_id, job, step, "position", flow_id
