-- question: What runs are there, and is what was captured of them whole?
-- row: a run
-- inputs: runs, total_volume, hosts, captures
-- source says whether a run was captured or made up (synthetic: nothing of it was measured).
WITH host_count AS (
    SELECT run_id, count(*) AS hosts
    FROM hosts
    GROUP BY run_id
), capture_count AS (
    SELECT run_id, count(*) AS captures, count(*) FILTER (status <> 'complete') AS partial_captures
    FROM captures
    GROUP BY run_id
), origin AS (
    SELECT run_id, source
    FROM runs
)
SELECT run_id, source, framework, backend, model,
       coalesce(model_bytes / 1e6, model_size_mb) AS model_mb,
       batch_size, topology,
       coalesce(hosts, 0) AS hosts, packets, wire_bytes, duration_s, steps,
       coalesce(captures, 0) AS captures, coalesce(partial_captures, 0) AS partial_captures
FROM total_volume
JOIN origin USING (run_id)
LEFT JOIN host_count USING (run_id)
LEFT JOIN capture_count USING (run_id)
ORDER BY run_id
