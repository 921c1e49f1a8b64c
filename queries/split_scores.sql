-- question: How well do the methods here, and plain baselines, do on the runs of each split?
-- subject: runs
-- row: a split, a task and a method
-- inputs: split_predictions
-- column: split; split of the published data (runs.split)
-- column: task; topology, root, steps or volume, as in split_predictions
-- column: method from split_predictions
-- column: runs runs; runs of the split with the task
-- column: scored runs; runs of the split whose error could be told
-- column: mean_error share; mean error of these runs (split_predictions): of topology the part that is wrong
-- column: median_error share; median
-- column: worst_error share; greatest
-- column: shared runs; runs that all methods of the task score
-- column: shared_mean_error share; mean error of the shared runs, by which methods compare
WITH predictions AS (
    SELECT *, count(*) OVER of_run = count(error) OVER of_run AS is_shared
    FROM split_predictions
    WINDOW of_run AS (PARTITION BY run_id, task)
)
SELECT split, task, method, count(*) AS runs, count(error) AS scored, avg(error) AS mean_error, median(error) AS median_error,
       max(error) AS worst_error, count(*) FILTER (is_shared) AS shared, avg(error) FILTER (is_shared) AS shared_mean_error
FROM predictions
GROUP BY split, task, method
ORDER BY split, task, method
