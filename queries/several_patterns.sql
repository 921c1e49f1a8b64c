-- question: Which runs have more than one pattern of exchange, so that no topology describes them?
-- subject: topology
-- row: such a run
-- inputs: flows, messages, captures
-- made_by: ddnn_traces.collectives
-- column: run_id from flows
-- column: jobs; jobs of the run
-- column: communicators; groups of hosts of all jobs
-- column: collectives; collectives in a step, of all jobs
-- column: topology; that of all patterns of the communicator that parameter communicator chose, such as ring for rings in both directions; null of a whole run, or of several
-- column: problem; how many collectives, communicators and shapes there are, and which query tells of each
-- A pattern is an algorithm on a graph: a ring in one direction, a tree, a pair of hosts. A run whose flows carry one transfer
-- a step each, from host to host, is none of these: topology tells more of it.
-- Python walks graphs here when this is read (inferred_jobs). DuckDB alone has no rows, and takes each run for one pattern.
SELECT run_id, count(*) AS jobs, count(*) AS communicators, count(*) AS collectives,
       NULL::VARCHAR AS topology, NULL::VARCHAR AS problem
FROM messages
JOIN flows USING (run_id, flow_id)
LEFT JOIN captures USING (run_id)  -- a run with a parsed file has no job: a part of its flows has no messages
WHERE false
GROUP BY run_id
ORDER BY run_id
