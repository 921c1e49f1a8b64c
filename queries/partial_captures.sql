-- question: Which captures could not be read to their end, and what is missing?
-- subject: runs
-- row: a capture file that is truncated or corrupt
-- inputs: captures
-- column: run_id
-- column: capture_id
-- column: status; truncated or corrupt
-- column: status_detail; what is wrong and from which byte on
-- column: records packets; complete records that were read
-- column: trailing_bytes bytes; bytes after the last complete record, uncompressed
SELECT run_id, capture_id, status, status_detail, records, trailing_bytes
FROM captures
WHERE status <> 'complete'
ORDER BY run_id, capture_id
