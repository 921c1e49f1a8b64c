-- question: How much does training a model transmit with each framework, compared with the model's size?
-- row: a model and a framework setting
-- inputs: total_volume, framework_settings
-- param: chosen_runs VARCHAR = NULL; only runs whose name matches this pattern (GLOB: * any text, ? any character); NULL: all
-- figure: zerwas fig. 3
-- column: model; name of the trained model; unknown where it is not declared
-- column: framework_setting; framework and backend, and whether it averages pairs (framework_settings)
-- column: runs runs; runs with a packet
-- column: model_mb MB (10^6 bytes); model_bytes, else the nominal size, mean over the runs
-- column: mean_steps steps; mean number of steps
-- column: mean_wire_bytes bytes; mean wire bytes of a run
-- column: least_wire_bytes bytes; fewest wire bytes of a run
-- column: most_wire_bytes bytes; most wire bytes of a run
-- Runs of different lengths cannot be compared fairly: mean_steps shows how long they were.
SELECT coalesce(model, 'unknown') AS model, framework_setting,
       count(*) AS runs,
       avg(coalesce(model_bytes / 1e6, model_size_mb)) AS model_mb,
       avg(steps) AS mean_steps,
       avg(wire_bytes) AS mean_wire_bytes,
       min(wire_bytes) AS least_wire_bytes,
       max(wire_bytes) AS most_wire_bytes
FROM total_volume
JOIN framework_settings USING (run_id)
WHERE packets > 0 AND ($chosen_runs IS NULL OR run_id GLOB $chosen_runs)
GROUP BY ALL
ORDER BY model_mb NULLS LAST, model, framework_setting
