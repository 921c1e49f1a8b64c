-- question: How much volume does one framework save against another on the way to an accuracy?
-- row: a model, a mark and two framework settings, the one that needs less first
-- inputs: volume_to_accuracy
-- param: mark_low DOUBLE = 0.6; lower accuracy to reach, 0 to 1
-- param: mark_high DOUBLE = 0.8; higher accuracy to reach
-- param: smooth_steps BIGINT = 1; the accuracy is the mean of so many last steps (fewer at the begin); 1: as logged
-- param: chosen_runs VARCHAR = NULL; only runs whose name matches this pattern (GLOB: * any text, ? any character); NULL: all
-- figure: zerwas section V-D (pair averaging needs about 30% less)
-- The volume of a setting is the mean over its runs that reach the mark; other_runs and runs say how many do. saving is
-- 1 - volume_ratio; null where only one of the two reaches the mark. Pairs of which none does are left out.
WITH needs AS (
    SELECT model, mark, framework_setting, count(*) AS all_runs, count(wire_bytes) AS reaching_runs,
           avg(wire_bytes) AS mean_wire_bytes
    FROM volume_to_accuracy(mark_low := $mark_low, mark_high := $mark_high, smooth_steps := $smooth_steps)
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
