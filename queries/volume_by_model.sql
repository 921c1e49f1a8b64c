-- question: How much does training a model transmit with each framework, compared with the model's size?
-- subject: volume
-- row: a model and a setting: runs that should send the same (run_configurations)
-- inputs: total_volume, run_configurations, run_settings, step_cable_volume
-- answer: setting, step_model_sizes
-- param: chosen_runs VARCHAR = NULL; only runs whose name matches this pattern (GLOB: * any text, ? any character); NULL: all
-- figure: zerwas fig. 3
-- column: model; name of the trained model; unknown where it is not declared
-- column: setting; framework setting, topology, order, workers and steps in one text (run_configurations)
-- column: framework_setting
-- column: topology; as in run_configurations
-- column: worker_order; as in run_configurations
-- column: workers
-- column: steps steps; different steps in the logs of each of the runs; null without a log
-- column: runs runs; runs with a packet
-- column: pooled; settings in which these runs differ, with their values (run_settings); null where there are none
-- column: model_mb
-- column: mean_step_cable_bytes bytes; bytes on the cable in a step, mean over the runs; null where one's are not known
-- column: mean_step_payload_bytes bytes; payload in a step, mean over the runs; null where a run has no traffic in steps
-- column: step_model_sizes ratio; mean_step_payload_bytes over the model's size
-- column: mean_wire_bytes bytes; mean wire bytes of a whole run, as captured
-- column: least_wire_bytes bytes; fewest wire bytes of a run
-- column: most_wire_bytes bytes; most wire bytes of a run
-- Runs of another topology, order, number of workers or steps are not averaged. Bytes on the cable (step_cable_volume)
-- compare runs with and without segmentation offload, wire bytes do not.
WITH volume AS (
    SELECT run_id, sum(cable_bytes) AS cable_bytes, count(*) = count(cable_bytes) AS is_known, sum(payload_bytes) AS payload_bytes
    FROM step_cable_volume
    GROUP BY run_id
), chosen AS MATERIALIZED (
    SELECT run_id, coalesce(c.model, 'unknown') AS model, setting, framework_setting, c.topology, worker_order, workers, c.steps,
           model_mb, wire_bytes, CASE WHEN is_known THEN v.cable_bytes / c.steps END AS step_cable_bytes,
           v.payload_bytes / c.steps AS step_payload_bytes
    FROM run_configurations AS c
    JOIN total_volume AS t USING (run_id)
    LEFT JOIN volume AS v USING (run_id)
    WHERE packets > 0 AND ($chosen_runs IS NULL OR run_id GLOB $chosen_runs)
), differing AS (
    SELECT model, model_mb, chosen.setting, s.setting AS name, string_agg(DISTINCT value, ', ' ORDER BY value) AS found
    FROM chosen
    JOIN run_settings AS s USING (run_id)
    GROUP BY model, model_mb, chosen.setting, name
    HAVING count(DISTINCT value) > 1
), pooled AS (
    SELECT model, model_mb, setting, string_agg(name || ' ' || found, '; ' ORDER BY name) AS pooled
    FROM differing
    GROUP BY model, model_mb, setting
), means AS (
    SELECT model, setting, framework_setting, topology, worker_order, workers, steps, model_mb, count(*) AS runs,
           CASE WHEN count(step_cable_bytes) = count(*) THEN avg(step_cable_bytes) END AS mean_step_cable_bytes,
           CASE WHEN count(step_payload_bytes) = count(*) THEN avg(step_payload_bytes) END AS mean_step_payload_bytes,
           avg(wire_bytes) AS mean_wire_bytes, min(wire_bytes) AS least_wire_bytes, max(wire_bytes) AS most_wire_bytes
    FROM chosen
    GROUP BY ALL
)
SELECT m.model, m.setting, framework_setting, topology, worker_order, workers, steps, runs, pooled, m.model_mb,
       mean_step_cable_bytes, mean_step_payload_bytes, mean_step_payload_bytes / (m.model_mb * 1e6) AS step_model_sizes,
       mean_wire_bytes, least_wire_bytes, most_wire_bytes
FROM means AS m
LEFT JOIN pooled AS p ON p.model = m.model AND p.setting = m.setting AND p.model_mb IS NOT DISTINCT FROM m.model_mb
ORDER BY m.model_mb NULLS LAST, m.model, m.setting
