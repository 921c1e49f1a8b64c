-- question: What do the methods here, and plain baselines, find out about each run of a split, and how far is it from the truth?
-- subject: runs
-- row: a run of a split, a task and a method
-- inputs: runs, hosts, topology, ring_comparison, collective_laws, step_inference_score, step_volume, run_attributes
-- column: split; split of the published data that the run belongs to (runs.split)
-- column: run_id from ring_comparison
-- column: task; topology (of the traffic), root (of a tree, a star or a tree of stars), steps (boundaries in the traffic) or volume (of a step, without the traffic)
-- column: method; inference (from the traffic), commonest (baseline: the topology that most runs of train declare), or of the volume: law, nearest_run, model
-- column: truth; declared topology (as declared_as in ring_comparison), address of the root, boundaries in the logs, or mean payload of a step, bytes; null where it is not known
-- column: predicted; topology, root, boundaries inferred, or mean payload of a step, bytes; null where nothing is
-- column: error share; topology and root: 0 right, 1 wrong; steps: 1 - F1 of the boundaries within 5 ms; volume: abs(predicted - truth) over truth; null where it cannot be told
-- What is learned is learned from the other runs of the split train (or of no split) alone. Three methods predict a volume:
--   law          law_factor of run_attributes times model_bytes: nothing is learned
--   nearest_run  of the run that differs in the fewest attributes, then least in the logarithm of model_bytes; a mean of equals
--   model        model_bytes times the mean payload of a step over model_bytes of the runs with the same framework, backend,
--                topology, workers and ranks; null without such a run
-- The root of a declared tree, star or binary_tree_star is the host of rank 0, to which this project's programs reduce, and the
-- one parameter server where there is one. Of two hosts neither topology nor root can be told.
-- F1 is 2 matched / (in_log + inferred) of step_inference_score, which also corrects for chance. Join predictions of other
-- methods by run_id and task, and take their error in the same way.
WITH volumes AS MATERIALIZED (
    SELECT run_id, coalesce(split, 'train') AS split, framework_backend, topology, workers, ranks_per_host, batch_size, delay_ms,
           loss_pct, bandwidth_mbit, congestion_control, model_bytes, law_factor, avg(payload_bytes) AS payload_bytes
    FROM step_volume
    JOIN run_attributes USING (run_id)
    JOIN (SELECT run_id, split FROM runs) USING (run_id)
    GROUP BY ALL
), learned AS (
    FROM volumes WHERE split = 'train'
), by_model AS (
    SELECT v.run_id, v.model_bytes * avg(t.payload_bytes / t.model_bytes) AS predicted
    FROM volumes AS v
    JOIN learned AS t USING (framework_backend, topology, workers, ranks_per_host)
    WHERE t.run_id <> v.run_id
    GROUP BY v.run_id, v.model_bytes
), distances AS (
    SELECT v.run_id, t.payload_bytes, abs(ln(t.model_bytes / v.model_bytes)) AS size_ratio,
           (t.framework_backend IS DISTINCT FROM v.framework_backend)::INTEGER + (t.topology IS DISTINCT FROM v.topology)::INTEGER
           + (t.workers IS DISTINCT FROM v.workers)::INTEGER + (t.ranks_per_host <> v.ranks_per_host)::INTEGER
           + (t.model_bytes IS DISTINCT FROM v.model_bytes)::INTEGER + (t.batch_size IS DISTINCT FROM v.batch_size)::INTEGER
           + (t.delay_ms IS DISTINCT FROM v.delay_ms)::INTEGER + (t.loss_pct IS DISTINCT FROM v.loss_pct)::INTEGER
           + (t.bandwidth_mbit IS DISTINCT FROM v.bandwidth_mbit)::INTEGER
           + (t.congestion_control IS DISTINCT FROM v.congestion_control)::INTEGER AS differing
    FROM volumes AS v
    JOIN learned AS t ON t.run_id <> v.run_id
), by_nearest AS (
    SELECT run_id, avg(payload_bytes) AS predicted
    FROM (FROM distances QUALIFY rank() OVER (PARTITION BY run_id ORDER BY differing, size_ratio NULLS LAST) = 1)
    GROUP BY run_id
), volume_predictions AS (
    SELECT run_id, method, payload_bytes AS truth,
           CASE method WHEN 'law' THEN law_factor * model_bytes WHEN 'model' THEN m.predicted ELSE n.predicted END AS predicted
    FROM volumes
    CROSS JOIN (VALUES ('law'), ('nearest_run'), ('model')) AS methods(method)
    LEFT JOIN by_model AS m USING (run_id)
    LEFT JOIN by_nearest AS n USING (run_id)
), compared AS MATERIALIZED (
    SELECT r.*, t.hosts, t.root_ip
    FROM ring_comparison AS r
    LEFT JOIN topology AS t USING (run_id)
), commonest AS (
    SELECT declared_as AS topology
    FROM compared
    JOIN runs USING (run_id)
    WHERE coalesce(split, 'train') = 'train' AND declared_as IS NOT NULL
    GROUP BY declared_as
    ORDER BY count(*) DESC, declared_as
    LIMIT 1
), declared_roots AS (
    SELECT run_id, arg_min(host_ip, (role IS DISTINCT FROM 'parameter_server', rank)) AS root_ip
    FROM hosts
    WHERE rank IS NOT NULL OR role = 'parameter_server'
    GROUP BY run_id
    HAVING count(*) FILTER (role = 'parameter_server') <= 1
), predictions AS (
    SELECT run_id, 'topology' AS task, 'inference' AS method, declared_as AS truth, inferred_topology AS predicted,
           CASE WHEN agrees THEN 0.0
                WHEN NOT agrees OR (inferred_topology = 'unknown' AND hosts IS DISTINCT FROM 2 AND declared_as IS NOT NULL) THEN 1.0 END AS error
    FROM compared
    UNION ALL
    SELECT run_id, 'topology', 'commonest', declared_as, c.topology, (declared_as <> c.topology)::DOUBLE
    FROM compared
    CROSS JOIN commonest AS c
    WHERE hosts IS DISTINCT FROM 2
    UNION ALL
    SELECT run_id, 'root', 'inference', d.root_ip, c.root_ip, (c.root_ip IS DISTINCT FROM d.root_ip)::DOUBLE
    FROM compared AS c
    JOIN declared_roots AS d USING (run_id)
    WHERE (declared_as = 'parameter_server' OR declared_as IN (SELECT topology FROM collective_laws() WHERE is_rooted))
      AND hosts IS DISTINCT FROM 2
    UNION ALL
    SELECT run_id, 'steps', 'inference', nullif(in_log, 0)::VARCHAR, nullif(inferred, 0)::VARCHAR,
           CASE WHEN matched IS NOT NULL THEN 1 - 2 * matched / (in_log + inferred) END
    FROM step_inference_score()
    UNION ALL
    SELECT run_id, 'volume', method, round(truth)::BIGINT::VARCHAR, round(predicted)::BIGINT::VARCHAR, abs(predicted - truth) / truth
    FROM volume_predictions
)
SELECT split, run_id, task, method, truth, predicted, error
FROM predictions
JOIN runs USING (run_id)
WHERE split IS NOT NULL
ORDER BY split, run_id, task, method
