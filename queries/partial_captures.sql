-- question: Which captures could not be read to their end, and what is missing?
-- row: a capture file that is truncated or corrupt
-- inputs: captures
SELECT run_id, capture_id, status, status_detail, records, trailing_bytes
FROM captures
WHERE status <> 'complete'
ORDER BY run_id, capture_id
