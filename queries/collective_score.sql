-- question: Are the collectives inferred from the traffic those that the programs logged?
-- subject: collectives
-- row: a run and a kind of collective that was logged or inferred
-- inputs: program_events, step_collectives
-- column: run_id from program_events
-- column: kind from step_collectives
-- column: logged_calls; calls of all workers in a step by their events, median over steps; of a send those of its sender
-- column: inferred_calls; hosts of the inferred collectives of a step, added up over these; of a send its sender
-- column: logged_bytes bytes; bytes of these calls in a step, median over steps
-- column: inferred_bytes bytes; tensor_bytes times the same hosts, added up
-- column: bytes_ratio ratio; inferred over logged; null where there is none of one
-- Only runs whose programs log single collectives have rows. Events name no group of hosts: calls are compared, not groups.
-- Each channel counts, and a program that makes a collective out of sends logs these: there the kinds differ.
WITH logged AS (
    SELECT run_id, step, kind AS logged_kind, count(*) AS calls, sum(bytes) AS bytes
    FROM program_events
    WHERE kind IN ('allreduce', 'allgather', 'reduce_scatter', 'alltoall', 'send')
    GROUP BY run_id, step, kind
), usual AS (
    SELECT run_id, CASE logged_kind WHEN 'allreduce' THEN 'all_reduce' WHEN 'allgather' THEN 'all_gather'
                                    WHEN 'alltoall' THEN 'all_to_all' ELSE logged_kind END AS kind,
           median(calls) AS logged_calls, median(bytes) AS logged_bytes
    FROM logged
    GROUP BY run_id, logged_kind
), inferred AS (
    SELECT run_id, kind, sum(callers)::DOUBLE AS inferred_calls, sum(callers * tensor_bytes)::DOUBLE AS inferred_bytes
    FROM (SELECT *, CASE WHEN kind = 'send' THEN 1 ELSE len(string_split(hosts, ',')) END AS callers FROM step_collectives)
    WHERE run_id IN (SELECT run_id FROM logged)
    GROUP BY run_id, kind
)
SELECT run_id, kind, coalesce(logged_calls, 0) AS logged_calls, coalesce(inferred_calls, 0) AS inferred_calls,
       logged_bytes, inferred_bytes, inferred_bytes / nullif(logged_bytes, 0) AS bytes_ratio
FROM usual
FULL JOIN inferred USING (run_id, kind)
ORDER BY run_id, kind
