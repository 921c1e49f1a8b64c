-- question: Of which runs is the payload of flows not known?
-- subject: runs
-- row: a run with a flow whose payload is not known
-- inputs: flows, captures
-- column: run_id
-- column: flows flows; flows of the run
-- column: unknown_flows flows; those of them whose payload is not known
-- column: unknown_wire_bytes bytes; wire bytes of these
-- column: problem; the same in words
-- Parsed files in place of captures (docs/zerwas_dataset.md) tell bytes on the wire, not payload. What is inferred from the
-- payload of all flows, as topology, steps and jobs, is not inferred of these runs: a part of them may look like another pattern.
WITH counted AS (
    SELECT run_id, count(*) AS flows, count(*) - count(payload_bytes) AS unknown_flows,
           sum(wire_bytes) FILTER (payload_bytes IS NULL)::BIGINT AS unknown_wire_bytes
    FROM flows
    WHERE run_id IN (SELECT run_id FROM captures WHERE format = 'tshark-fields')
    GROUP BY run_id
)
SELECT run_id, counted.flows, unknown_flows, unknown_wire_bytes,
       format('the payload of {} flows is not known: parsed files stand for captures',
              CASE WHEN unknown_flows < counted.flows THEN 'some' ELSE 'its' END) AS problem
FROM counted
WHERE unknown_flows > 0
ORDER BY run_id
