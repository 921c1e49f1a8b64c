-- question: Which runs hold the same packets as another one, as copies of a folder do?
-- subject: runs
-- row: a captured run that holds the same as another one
-- inputs: flows, captures
-- answer: first_run_id, runs
-- column: run_id from flows
-- column: first_run_id; the first by name of the runs that hold the same: the others tell nothing that it does not
-- column: runs runs; runs that hold the same
-- column: packets packets; packets of each of them
-- column: wire_bytes bytes; their original lengths
-- The same: as many flows, packets and bytes, from the same first to the same last time, to the ns.
WITH held AS (
    SELECT run_id, count(*) AS flows, sum(packets)::BIGINT AS packets, sum(wire_bytes)::BIGINT AS wire_bytes,
           sum(payload_bytes)::BIGINT AS payload_bytes, min(first_seen_ns) AS first_ns, max(last_seen_ns) AS last_ns
    FROM flows
    SEMI JOIN captures USING (run_id)
    GROUP BY run_id
), alike AS (
    SELECT run_id, min(run_id) OVER same AS first_run_id, count(*) OVER same AS runs, packets, wire_bytes
    FROM held
    WINDOW same AS (PARTITION BY flows, packets, wire_bytes, payload_bytes, first_ns, last_ns)
)
SELECT run_id, first_run_id, runs, packets, wire_bytes
FROM alike
WHERE runs > 1
ORDER BY run_id
