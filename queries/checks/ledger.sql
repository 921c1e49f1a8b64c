-- question: Which captures have records that are neither in flows nor in the ledger under another reason?
-- row: a capture whose ledger does not add up to its records
-- inputs: captures, capture_ledger
-- column: run_id
-- column: capture_id from captures
-- column: records packets; complete records in the file; null where the ledger has a file that captures lacks
-- column: ledger_packets packets; sum of the file's ledger rows
-- column: wire_bytes bytes; original lengths of all records
-- column: ledger_wire_bytes bytes; sum of the file's ledger rows
WITH sums AS (
    SELECT run_id, capture_id, sum(packets)::BIGINT AS ledger_packets, sum(wire_bytes)::BIGINT AS ledger_wire_bytes
    FROM capture_ledger
    GROUP BY ALL
)
SELECT run_id, capture_id, records, coalesce(ledger_packets, 0) AS ledger_packets, wire_bytes,
       coalesce(ledger_wire_bytes, 0) AS ledger_wire_bytes
FROM captures
FULL JOIN sums USING (run_id, capture_id)
WHERE records IS DISTINCT FROM coalesce(ledger_packets, 0) OR wire_bytes IS DISTINCT FROM coalesce(ledger_wire_bytes, 0)
ORDER BY run_id, capture_id
