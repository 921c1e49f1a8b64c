-- question: What became of all captured packets?
-- subject: runs
-- row: a reason of the ledger
-- inputs: capture_ledger
-- column: reason; reason of the ledger, as in capture_ledger
-- column: runs runs; runs with packets under this reason
-- column: captures captures; captures with packets under this reason
-- column: packets packets; packets under this reason
-- column: wire_bytes bytes; sum of the packets' original lengths
-- column: share_of_packets share; part of all captured packets
SELECT reason, count(DISTINCT run_id) AS runs, count(*) AS captures,
       sum(packets)::BIGINT AS packets, sum(wire_bytes)::BIGINT AS wire_bytes,
       sum(packets) / sum(sum(packets)) OVER () AS share_of_packets
FROM capture_ledger
GROUP BY reason
ORDER BY packets DESC, reason
