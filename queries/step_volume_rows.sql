-- question: How much is transmitted in each training step, and which attributes of the run may explain it?
-- row: a run and a step of any of its workers; a run without steps has one row, with nulls
-- inputs: steps, step_volume, run_attributes
-- figure: zerwas section VI, equation (1) with a row a step
-- A step without a packet transmits 0 bytes where others of its run have packets.
WITH run_steps AS (
    SELECT DISTINCT run_id, step
    FROM steps
), run_has_volume AS (
    SELECT DISTINCT run_id, true AS has_volume
    FROM step_volume
)
SELECT run_id, step,
       CASE WHEN has_volume THEN coalesce(wire_bytes, 0) END::DOUBLE AS step_bytes,
       run_attributes.* EXCLUDE (run_id)
FROM run_attributes
LEFT JOIN run_steps USING (run_id)
LEFT JOIN run_has_volume USING (run_id)
LEFT JOIN step_volume USING (run_id, step)
ORDER BY run_id, step
