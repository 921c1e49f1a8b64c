-- question: Which runs lack more than 0.1 % of what was sent, because it was not captured?
-- row: a run
-- inputs: run_capture_loss
-- column: run_id
-- column: missed_bytes bytes; bytes that were sent, as sequence or acknowledgement numbers prove, and not captured
-- column: percent_lost percent; those that only the capture can have lost, of what was sent
-- column: dropped_packets packets; packets that the captures' own counters say were dropped
-- column: percent_dropped percent; dropped_packets of what they and the records add up to
-- 0.1 % is a twentieth of what conservation leaves unexplained without a warning. Volumes of such a run are too low:
-- flow_capture_loss names the connections, capture_loss the files.
SELECT run_id, missed_bytes, percent_lost, dropped_packets, percent_dropped
FROM run_capture_loss()
WHERE flagged
ORDER BY run_id
