-- question: Which jobs, steps and collectives does the traffic of a run show, without any log?
-- subject: collectives
-- row: a run and a job; one row without a job for a run whose traffic shows none
-- inputs: flows, messages, captures
-- made_by: ddnn_traces.collectives
-- column: run_id from flows
-- column: job; number of the job in its run, from 0, in the order in which their first steps begin
-- column: flows; its flows: flow_id, and step_bytes (bytes of a step)
-- column: collectives; the collectives of a step in the order in which they begin, as query collectives has them; transfers: what each flow sends for it in each step
-- Python walks graphs here when this is read (docs/collectives.md). DuckDB alone cannot: the SQL below says so.
SELECT NULL::VARCHAR AS run_id, NULL::BIGINT AS job, NULL::STRUCT(flow_id BIGINT, step_bytes DOUBLE)[] AS flows,
       NULL::STRUCT("position" BIGINT, kind VARCHAR, kind_or VARCHAR, algorithm VARCHAR, channel BIGINT, hosts VARCHAR[],
                    tensor_bytes BIGINT, evidence VARCHAR,
                    transfers STRUCT(step BIGINT, flow_id BIGINT, first_ns BIGINT, last_ns BIGINT, bytes BIGINT)[])[] AS collectives
FROM messages
JOIN flows USING (run_id, flow_id)
LEFT JOIN captures USING (run_id)  -- a run with a parsed file has no job: a part of its flows has no messages
WHERE error('jobs and collectives are inferred in Python: open the dataset with ddnn_traces')
ORDER BY run_id, job
