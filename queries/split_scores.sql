-- question: How well do the methods here do on the runs of each split?
-- subject: runs
-- row: a split and a task
-- inputs: split_predictions
-- column: split; split of the published data (runs.split)
-- column: task; topology, steps or volume, as in split_predictions
-- column: runs runs; runs of the split
-- column: scored runs; runs of the split whose error could be told
-- column: mean_error share; mean error of these runs (split_predictions): of topology the part that is wrong
-- column: median_error share; median
-- column: worst_error share; greatest
SELECT split, task, count(*) AS runs, count(error) AS scored, avg(error) AS mean_error, median(error) AS median_error,
       max(error) AS worst_error
FROM split_predictions
GROUP BY split, task
ORDER BY split, task
