-- question: What became of all captured packets?
-- row: a reason of the ledger
-- inputs: capture_ledger
SELECT reason, count(DISTINCT run_id) AS runs, count(*) AS captures,
       sum(packets)::BIGINT AS packets, sum(wire_bytes)::BIGINT AS wire_bytes,
       sum(packets) / sum(sum(packets)) OVER () AS share_of_packets
FROM capture_ledger
GROUP BY reason
ORDER BY packets DESC, reason
