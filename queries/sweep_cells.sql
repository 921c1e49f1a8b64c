-- question: How many samples a second does training do in each cell of a sweep, and where does it not finish?
-- row: a cell: runs with the same framework, model, batch size, topology, workers, congestion control and conditions of links
-- inputs: runs, events, run_attributes, step_time_rows, logged_steps, student_t
-- param: first_step BIGINT = 1; steps before it are not counted: in step 0 connections begin
-- figure: cheng figs. 2 to 10
-- column: framework_backend
-- column: topology
-- column: model
-- column: batch_size
-- column: workers
-- column: delay_ms
-- column: bandwidth_mbit
-- column: loss_pct
-- column: congestion_control
-- column: runs runs; runs of the cell
-- column: finished_runs runs; those whose log has all planned steps, or, where none are planned, any step
-- column: step_ms ms; duration of a step, mean over the means of the finished runs
-- column: step_error_ms ms; its standard error, over means of runs or over steps (interval_of)
-- column: means; so many means of runs, or steps
-- column: samples_per_s samples/s; workers x batch_size over step_ms; null where no run finished
-- column: low_samples_per_s samples/s; lower end of its 95% interval, by Student's t on the mean step times; null with fewer than two
-- column: high_samples_per_s samples/s; upper end
-- column: interval_of; whose means the interval is of: runs, or steps, where only one run finished
-- Runs in which something was killed on purpose are left out: their steps wait for a restart (fault_recovery).
-- The paper's mean is of single steps (its section 3.2). An interval over the steps of one run holds where they do not
-- depend on each other; one over runs holds also where they do.
WITH step_times AS (
    SELECT run_id, step_ms
    FROM step_time_rows
    WHERE step >= $first_step
), of_run AS (
    SELECT run_id, avg(step_ms) AS step_ms, count(*) AS steps, stddev_samp(step_ms) AS step_deviation
    FROM step_times
    GROUP BY run_id
), judged AS (
    SELECT a.*, congestion_control, m.step_ms, m.steps, m.step_deviation,
           coalesce(coalesce(l.steps, 0) >= planned_steps, l.steps > 0, false) AS is_finished
    FROM run_attributes AS a
    JOIN runs USING (run_id)
    ANTI JOIN (SELECT run_id FROM events WHERE kind IN ('process_killed', 'host_killed')) USING (run_id)
    LEFT JOIN logged_steps AS l USING (run_id)
    LEFT JOIN of_run AS m USING (run_id)
), cells AS (
    SELECT framework_backend, topology, model, batch_size, workers, delay_ms, bandwidth_mbit, loss_pct,
           congestion_control, count(*) AS runs,
           count(*) FILTER (is_finished) AS finished_runs,
           avg(step_ms) FILTER (is_finished) AS step_ms,
           count(step_ms) FILTER (is_finished) AS timed_runs,
           stddev_samp(step_ms) FILTER (is_finished) AS run_deviation,
           max(steps) FILTER (is_finished) AS steps, max(step_deviation) FILTER (is_finished) AS step_deviation
    FROM judged
    GROUP BY ALL
), with_errors AS (
    SELECT cells.*, CASE WHEN timed_runs > 1 THEN 'runs' WHEN timed_runs = 1 AND steps > 1 THEN 'steps' END AS interval_of,
           CASE WHEN timed_runs > 1 THEN timed_runs ELSE steps END AS n,
           CASE WHEN timed_runs > 1 THEN run_deviation ELSE step_deviation END / sqrt(n) AS standard_error
    FROM cells
)
SELECT framework_backend, topology, model, batch_size, workers, delay_ms, bandwidth_mbit, loss_pct, congestion_control,
       runs, finished_runs,
       step_ms, CASE WHEN interval_of IS NOT NULL THEN standard_error END AS step_error_ms,
       CASE WHEN interval_of IS NOT NULL THEN n END AS means,
       workers * batch_size / nullif(step_ms, 0) * 1e3 AS samples_per_s,
       CASE WHEN interval_of IS NOT NULL THEN workers * batch_size / (step_ms + t * standard_error) * 1e3 END AS low_samples_per_s,
       CASE WHEN interval_of IS NOT NULL AND step_ms > t * standard_error
            THEN workers * batch_size / (step_ms - t * standard_error) * 1e3 END AS high_samples_per_s,
       interval_of
FROM with_errors
LEFT JOIN student_t ON df = least(n - 1, 1000)
ORDER BY framework_backend, topology, model, batch_size, workers, congestion_control, delay_ms, bandwidth_mbit, loss_pct
