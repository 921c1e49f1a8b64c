-- question: How much volume does one framework save compared with another until the model reaches an accuracy?
-- subject: accuracy
-- row: a model, a mark and two framework settings, the one that needs less first
-- inputs: volume_to_accuracy
-- answer: framework_setting, other_setting, saving
-- param: accuracy_of VARCHAR = training; training: of the batches that are trained on; held_out: of data that are not, where the log has it
-- param: mark_low DOUBLE = 0.6; lower accuracy to reach, 0 to 1
-- param: mark_high DOUBLE = 0.8; higher accuracy to reach
-- param: smooth_steps BIGINT = 1; the accuracy is the mean of this many last steps (fewer at the start); 1: as logged
-- param: chosen_runs VARCHAR = NULL; only runs whose name matches this pattern (GLOB: * any text, ? any character); NULL: all
-- figure: zerwas section V-D (pair averaging needs about 30% less)
-- column: model
-- column: mark
-- column: framework_setting; setting that needs less volume
-- column: runs runs; runs of this setting
-- column: reaching_runs runs; those of them that reach the mark
-- column: mean_wire_bytes bytes; mean volume up to the mark of the runs that reach it; wire_bytes of volume_to_accuracy
-- column: other_setting; setting that needs more, or whose runs never reach the mark
-- column: other_runs runs; runs of the other setting
-- column: other_reaching_runs runs; those of them that reach the mark
-- column: other_mean_wire_bytes bytes; as mean_wire_bytes, of the other setting; null where none of its runs reaches the mark
-- column: volume_ratio ratio; mean_wire_bytes over other_mean_wire_bytes; null where only one setting reaches the mark
-- column: saving share; 1 - volume_ratio
-- Pairs of settings are left out where neither reaches the mark.
WITH needs AS (
    SELECT model, mark, framework_setting, count(*) AS all_runs, count(wire_bytes) AS reaching_runs,
           avg(wire_bytes) AS mean_wire_bytes
    FROM volume_to_accuracy(accuracy_of := $accuracy_of, mark_low := $mark_low, mark_high := $mark_high,
                            smooth_steps := $smooth_steps)
    WHERE $chosen_runs IS NULL OR run_id GLOB $chosen_runs
    GROUP BY ALL
)
SELECT a.model, a.mark,
       a.framework_setting, a.all_runs AS runs, a.reaching_runs, a.mean_wire_bytes,
       b.framework_setting AS other_setting, b.all_runs AS other_runs, b.reaching_runs AS other_reaching_runs,
       b.mean_wire_bytes AS other_mean_wire_bytes,
       a.mean_wire_bytes / b.mean_wire_bytes AS volume_ratio,
       1 - a.mean_wire_bytes / b.mean_wire_bytes AS saving
FROM needs AS a
JOIN needs AS b
    ON b.model = a.model AND b.mark = a.mark AND b.framework_setting <> a.framework_setting
   -- once, and in order: what is never reached needs most
   AND (a.mean_wire_bytes < coalesce(b.mean_wire_bytes, 'infinity'::DOUBLE)
        OR (a.mean_wire_bytes = b.mean_wire_bytes AND a.framework_setting < b.framework_setting))
ORDER BY a.model, a.mark, a.framework_setting, other_setting
