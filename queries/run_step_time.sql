-- question: How long does a training step of a run take, how many samples a second is that, and which attributes may explain it?
-- row: a run
-- inputs: step_time_rows, run_attributes
-- figure: cheng figs. 2 to 10
-- step_ms is the mean over the run's steps; samples_per_s is that of the mean step: workers x batch_size / step_ms.
WITH step_time AS (
    SELECT run_id, avg(step_ms) AS mean_ms
    FROM step_time_rows
    GROUP BY run_id
)
SELECT run_id, mean_ms AS step_ms, workers * batch_size / nullif(mean_ms, 0) * 1e3 AS samples_per_s,
       run_attributes.* EXCLUDE (run_id)
FROM run_attributes
LEFT JOIN step_time USING (run_id)
ORDER BY run_id
