-- question: How long does each training step take, how many samples a second is that, and which attributes may explain it?
-- row: a run and a step of any of its workers; a run without steps has one row, with nulls
-- inputs: steps, run_attributes
-- figure: cheng figs. 2 to 10, with a row a step
-- step_ms is the mean over the workers that logged the step. A log's first step whose begin is only estimated is left out.
-- samples_per_s is what all workers together train on: workers x batch_size / step_ms.
WITH step_time AS (
    SELECT run_id, step, avg(end_ns - start_ns) / 1e6 AS step_ms
    FROM steps
    WHERE start_source IS DISTINCT FROM 'estimated'
    GROUP BY run_id, step
)
SELECT run_id, step, step_ms, workers * batch_size / nullif(step_ms, 0) * 1e3 AS samples_per_s,
       run_attributes.* EXCLUDE (run_id)
FROM run_attributes
LEFT JOIN step_time USING (run_id)
ORDER BY run_id, step
