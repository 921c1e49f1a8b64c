-- question: How much must a run transmit until the model has reached an accuracy?
-- subject: accuracy
-- row: a run whose log has an accuracy, and a mark
-- inputs: accuracy_volume
-- param: accuracy_of VARCHAR = training; training: of the batches that are trained on; held_out: of data that are not, where the log has it
-- param: mark_low DOUBLE = 0.6; lower accuracy to reach, 0 to 1
-- param: mark_high DOUBLE = 0.8; higher accuracy to reach
-- param: smooth_steps BIGINT = 1; the accuracy is the mean of this many last steps (fewer at the start); 1: as logged
-- figure: zerwas fig. 8 (dashed lines)
-- column: run_id
-- column: framework_setting
-- column: model
-- column: mark share; accuracy to reach: mark_low or mark_high
-- column: is_reached; whether a step has this accuracy or more
-- column: step; first such step; null where it is never reached
-- column: wire_bytes bytes; volume of the run up to the end of that step
-- column: elapsed_s s; time from the start of the log's first step to the end of that step
-- column: lasting_wire_bytes bytes; volume up to the first step from which on the accuracy stays there to the log's end; null where it does not
-- column: best_accuracy share; highest accuracy of the run
-- column: run_wire_bytes bytes; volume up to the last step of the log
-- The accuracy of single batches jumps: lasting_wire_bytes is the steadier of the two.
WITH curves AS (
    SELECT *, unnest([low_mark, high_mark]) AS mark
    FROM accuracy_volume(accuracy_of := $accuracy_of, smooth_steps := $smooth_steps,
                         mark_low := $mark_low, mark_high := $mark_high)
), watched AS (
    SELECT *, max(step) FILTER (accuracy < mark) OVER (PARTITION BY run_id, mark) AS last_below
    FROM curves
)
SELECT run_id, framework_setting, model, mark,
       bool_or(accuracy >= mark) AS is_reached,
       min(step) FILTER (accuracy >= mark) AS step,
       min(wire_bytes) FILTER (accuracy >= mark) AS wire_bytes,
       min(elapsed_s) FILTER (accuracy >= mark) AS elapsed_s,
       min(wire_bytes) FILTER (step > coalesce(last_below, -1)) AS lasting_wire_bytes,
       max(accuracy) AS best_accuracy,
       max(wire_bytes) AS run_wire_bytes
FROM watched
GROUP BY run_id, framework_setting, model, mark
ORDER BY run_id, mark
