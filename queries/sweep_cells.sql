-- question: How many samples a second does training do in each cell of a sweep, and where does it not finish?
-- subject: conditions
-- row: a cell: runs with the same framework, model, batch size, topology, workers, ranks of each, congestion control and conditions of links
-- inputs: events, run_attributes, step_time_rows, logged_steps, within_run, student_t
-- answer: topology, model, delay_ms, bandwidth_mbit, loss_pct, samples_per_s
-- param: skip_steps BIGINT = 1; first steps of each run that are left out, as in step_time_rows
-- figure: cheng figs. 2 to 10
-- column: framework_backend
-- column: topology
-- column: model
-- column: batch_size
-- column: workers
-- column: ranks_per_host
-- column: delay_ms
-- column: bandwidth_mbit
-- column: loss_pct
-- column: congestion_control
-- column: runs runs; runs of the cell
-- column: finished_runs runs; those whose log has all planned steps, or, where none are planned, any step
-- column: step_ms ms; duration of a step, mean over the means of the finished runs
-- column: step_error_ms ms; its standard error, of what interval_of says
-- column: means; so many runs, or steps of the one run, are behind step_ms
-- column: samples_per_s samples/s; workers x batch_size over step_ms; null where no run finished
-- column: low_samples_per_s samples/s; lower end of its 95% interval, by Student's t on the mean step times; null where interval_of is
-- column: high_samples_per_s samples/s; upper end
-- column: interval_of; runs: where further runs of the cell would be; this run: only where the mean of a longer run would be (within_run); null with two runs, or with one of fewer than 200 steps
-- Runs in which something was killed on purpose are left out: their steps wait for a restart (fault_recovery).
-- The paper's mean is of single steps (its section 3.2). Here a run is one value: steps of a run are alike, and in data/dataset
-- the variance between repeats is 6 times what their steps predict (benchmarks/within_run.py).
WITH thresholds AS (
    SELECT 3 AS least_runs
), step_times AS (
    SELECT run_id, list(step_ms ORDER BY step) AS series
    FROM step_time_rows(skip_steps := $skip_steps)
    GROUP BY run_id
), of_run AS (
    SELECT run_id, mean AS step_ms, samples AS steps, error
    FROM step_times, within_run(series := series)
), judged AS (
    SELECT a.* EXCLUDE (steps), m.step_ms, m.steps, m.error,
           coalesce(coalesce(l.steps, 0) >= planned_steps, l.steps > 0, false) AS is_finished
    FROM run_attributes AS a
    ANTI JOIN (SELECT run_id FROM events WHERE kind IN ('process_killed', 'host_killed')) USING (run_id)
    LEFT JOIN logged_steps AS l USING (run_id)
    LEFT JOIN of_run AS m USING (run_id)
), cells AS (
    SELECT framework_backend, topology, model, batch_size, workers, ranks_per_host, delay_ms, bandwidth_mbit, loss_pct,
           congestion_control, count(*) AS runs,
           count(*) FILTER (is_finished) AS finished_runs,
           avg(step_ms) FILTER (is_finished) AS step_ms,
           count(step_ms) FILTER (is_finished) AS timed_runs,
           stddev_samp(step_ms) FILTER (is_finished) AS run_deviation,
           max(steps) FILTER (is_finished) AS steps, max(error) FILTER (is_finished) AS error_within
    FROM judged
    GROUP BY ALL
), with_errors AS (
    SELECT cells.*,
           CASE WHEN timed_runs >= least_runs THEN 'runs' WHEN timed_runs = 1 AND error_within IS NOT NULL THEN 'this run' END
               AS interval_of,
           CASE interval_of WHEN 'runs' THEN run_deviation / sqrt(timed_runs) WHEN 'this run' THEN error_within END AS standard_error,
           CASE interval_of WHEN 'runs' THEN timed_runs - 1 WHEN 'this run' THEN 9 END AS df
    FROM cells
    CROSS JOIN thresholds
)
SELECT framework_backend, topology, model, batch_size, workers, ranks_per_host, delay_ms, bandwidth_mbit, loss_pct,
       congestion_control, runs, finished_runs,
       step_ms, standard_error AS step_error_ms,
       CASE WHEN timed_runs > 1 THEN timed_runs ELSE nullif(steps, 0) END AS means,
       workers * batch_size / nullif(step_ms, 0) * 1e3 AS samples_per_s,
       workers * batch_size / (step_ms + t * standard_error) * 1e3 AS low_samples_per_s,
       CASE WHEN step_ms > t * standard_error THEN workers * batch_size / (step_ms - t * standard_error) * 1e3 END
           AS high_samples_per_s,
       interval_of
FROM with_errors
LEFT JOIN student_t ON student_t.df = least(with_errors.df, 1000)
ORDER BY framework_backend, topology, model, batch_size, workers, ranks_per_host, congestion_control, delay_ms, bandwidth_mbit, loss_pct
