-- question: How accurate is the model after how much transmitted volume?
-- subject: accuracy
-- row: a run and a training step at whose end the accuracy is known
-- inputs: runs, hosts, steps, step_flows, framework_settings
-- param: accuracy_of VARCHAR = training; training: of the batches that are trained on; held_out: of data that are not, where the log has it
-- param: smooth_steps BIGINT = 1; the accuracy is the mean of this many last steps (fewer at the start); 1: as logged
-- param: points BIGINT > 0 = NULL; at most about this many steps of a run, evenly spaced, and the last; NULL: all
-- param: mark_low DOUBLE = 0.6; accuracy of the lower dashed line of the figure, 0 to 1
-- param: mark_high DOUBLE = 0.8; accuracy of the upper dashed line
-- figure: zerwas fig. 8
-- column: run_id from hosts
-- column: framework_setting
-- column: model; name of the trained model; unknown where it is not declared
-- column: worker; label of the worker whose log gives the accuracy
-- column: step from steps
-- column: epoch
-- column: accuracy share; accuracy, mean over the last smooth_steps steps
-- column: logged_accuracy share; accuracy of this step as logged
-- column: wire_bytes bytes; volume of the run from its start to the end of this step
-- column: elapsed_s s; time from the start of the log's first step to the end of this one
-- column: low_mark share; parameter mark_low
-- column: high_mark share; parameter mark_high
-- The accuracy is one worker's: the first by rank whose log has an accuracy above 0. A parameter server that evaluates
-- nothing logs 0. The volume is all that the run transmitted before training and up to this step's end. It is added up
-- by steps, and the steps of a flow are those of the worker at whose host it was captured. In an asynchronous run other
-- workers may be some steps ahead or late.
WITH logged AS (
    SELECT run_id, worker, step, epoch, start_ns, end_ns,
           if($accuracy_of = 'held_out', held_out_accuracy, accuracy) AS accuracy
    FROM steps
    WHERE if($accuracy_of = 'held_out', held_out_accuracy, accuracy) IS NOT NULL
), workers AS (
    SELECT run_id, worker, max(accuracy) > 0 AS learns
    FROM logged
    GROUP BY run_id, worker
), first_workers AS (
    SELECT w.run_id, w.worker
    FROM workers AS w
    LEFT JOIN hosts AS h ON h.run_id = w.run_id AND h.label = w.worker
    QUALIFY row_number() OVER (PARTITION BY w.run_id ORDER BY learns DESC, rank NULLS LAST, length(w.worker), w.worker) = 1
), curves AS (
    SELECT run_id, worker, step, epoch, accuracy AS logged_accuracy,
           avg(accuracy) OVER (PARTITION BY run_id ORDER BY step
                               ROWS BETWEEN $smooth_steps - 1 PRECEDING AND CURRENT ROW) AS accuracy,
           (end_ns - min(start_ns) OVER (PARTITION BY run_id)) / 1e9 AS elapsed_s,
           row_number() OVER (PARTITION BY run_id ORDER BY step DESC) AS from_end,
           count(*) OVER (PARTITION BY run_id) AS step_count
    FROM logged
    JOIN first_workers USING (run_id, worker)
), volumes AS (
    SELECT run_id, coalesce(step, -1) AS step, sum(wire_bytes) AS bytes
    FROM step_flows
    WHERE position <> 'after'
    GROUP BY ALL
), accumulated AS (
    SELECT run_id, step, sum(bytes) OVER (PARTITION BY run_id ORDER BY step)::BIGINT AS wire_bytes
    FROM volumes
)
SELECT c.run_id, framework_setting, coalesce(model, 'unknown') AS model, c.worker, c.step, c.epoch,
       c.accuracy, c.logged_accuracy,
       a.wire_bytes, c.elapsed_s,
       $mark_low::DOUBLE AS low_mark,
       $mark_high::DOUBLE AS high_mark
FROM curves AS c
ASOF JOIN accumulated AS a ON a.run_id = c.run_id AND a.step <= c.step  -- a step may transmit nothing
JOIN runs AS r ON r.run_id = c.run_id
JOIN framework_settings AS s ON s.run_id = c.run_id
WHERE $points IS NULL OR (from_end - 1) % greatest(step_count // $points, 1) = 0
ORDER BY c.run_id, c.step
