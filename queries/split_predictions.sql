-- question: What do the methods here find out about each run of a split, and how far is it from the truth?
-- subject: runs
-- row: a run of a split and a task
-- inputs: runs, hosts, topology, ring_comparison, collective_laws, step_inference_score, step_volume, run_attributes
-- column: split; split of the published data that the run belongs to (runs.split)
-- column: run_id from ring_comparison
-- column: task; topology (of the traffic), root (of a tree, a star or a tree of stars), steps (boundaries in the traffic) or volume (of a step, without the traffic)
-- column: truth; declared topology (as declared_as in ring_comparison), address of the root, boundaries in the logs, or mean payload of a step, bytes; null where it is not known
-- column: predicted; inferred topology, inferred root, boundaries inferred, or mean payload of a step, bytes; null where nothing is
-- column: error share; topology and root: 0 right, 1 wrong; steps: 1 - F1 of the boundaries within 5 ms; volume: abs(predicted - truth) over truth; null where it cannot be told
-- The volume is predicted from the other runs of the split train (or of no split) alone: model_bytes times the mean payload
-- of a step over model_bytes of the runs with the same framework, backend, topology and workers; null without such a run.
-- The root of a declared tree, star or binary_tree_star is the host of rank 0, to which this project's programs reduce, and the
-- one parameter server where there is one. Of two hosts neither topology nor root can be told.
-- F1 is 2 matched / (in_log + inferred) of step_inference_score, which also corrects for chance. Join predictions of other
-- methods by run_id and task, and take their error in the same way.
WITH volumes AS (
    SELECT run_id, coalesce(split, 'train') AS split, framework_backend, topology, workers, model_bytes,
           avg(payload_bytes) AS payload_bytes
    FROM step_volume
    JOIN run_attributes USING (run_id)
    JOIN (SELECT run_id, split FROM runs) USING (run_id)
    GROUP BY ALL
), volume_predictions AS (
    SELECT v.run_id, any_value(v.payload_bytes) AS truth, any_value(v.model_bytes) * avg(t.payload_bytes / t.model_bytes) AS predicted
    FROM volumes AS v
    LEFT JOIN volumes AS t
           ON t.split = 'train' AND t.run_id <> v.run_id AND t.framework_backend = v.framework_backend
          AND t.topology = v.topology AND t.workers = v.workers
    GROUP BY v.run_id
), declared_roots AS (
    SELECT run_id, arg_min(host_ip, (role IS DISTINCT FROM 'parameter_server', rank)) AS root_ip
    FROM hosts
    WHERE rank IS NOT NULL OR role = 'parameter_server'
    GROUP BY run_id
    HAVING count(*) FILTER (role = 'parameter_server') <= 1
), predictions AS (
    SELECT run_id, 'topology' AS task, declared_as AS truth, inferred_topology AS predicted,
           CASE WHEN agrees THEN 0.0
                WHEN NOT agrees OR (inferred_topology = 'unknown' AND hosts IS DISTINCT FROM 2 AND declared_as IS NOT NULL) THEN 1.0 END AS error
    FROM ring_comparison
    JOIN (SELECT run_id, hosts FROM topology) USING (run_id)
    UNION ALL
    SELECT run_id, 'root', d.root_ip, t.root_ip, (t.root_ip IS DISTINCT FROM d.root_ip)::DOUBLE
    FROM ring_comparison
    JOIN topology AS t USING (run_id)
    JOIN declared_roots AS d USING (run_id)
    WHERE (declared_as = 'parameter_server' OR declared_as IN (SELECT topology FROM collective_laws() WHERE is_rooted))
      AND hosts IS DISTINCT FROM 2
    UNION ALL
    SELECT run_id, 'steps', nullif(in_log, 0)::VARCHAR, nullif(inferred, 0)::VARCHAR,
           CASE WHEN matched IS NOT NULL THEN 1 - 2 * matched / (in_log + inferred) END
    FROM step_inference_score()
    UNION ALL
    SELECT run_id, 'volume', round(truth)::BIGINT::VARCHAR, round(predicted)::BIGINT::VARCHAR, abs(predicted - truth) / truth
    FROM volume_predictions
)
SELECT split, run_id, task, truth, predicted, error
FROM predictions
JOIN runs USING (run_id)
WHERE split IS NOT NULL
ORDER BY split, run_id, task
