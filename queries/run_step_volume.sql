-- question: How much does a run transmit per training step, and which attributes may explain it?
-- row: a run
-- inputs: steps, step_volume, run_attributes
-- figure: zerwas section VI, the data of equation (1)
WITH step_count AS (
    SELECT run_id, count(DISTINCT step) AS steps
    FROM steps
    GROUP BY run_id
), volume AS (
    SELECT run_id, sum(wire_bytes) AS wire_bytes
    FROM step_volume
    GROUP BY run_id
)
SELECT run_id,
       wire_bytes / nullif(steps, 0) AS step_bytes,  -- steps without a packet count too
       run_attributes.* EXCLUDE (run_id)
FROM run_attributes
LEFT JOIN step_count USING (run_id)
LEFT JOIN volume USING (run_id)
ORDER BY run_id
