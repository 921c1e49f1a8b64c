-- question: Which runs should send the same, so that a mean over them means something?
-- subject: runs
-- row: a run
-- inputs: runs, hosts, logged_steps, framework_settings, ring_comparison, ring_order, pair_payload, step_synchrony, host_names, collective_laws
-- column: run_id from hosts
-- column: configuration; setting and model in one text: the same for runs that should send the same
-- column: setting; framework setting, topology, order, workers and steps in one text, without what is not known
-- column: framework_setting
-- column: model; name of the trained model; null where it is not declared
-- column: model_mb MB (10^6 bytes); model_bytes, else the nominal size
-- column: topology; declared topology in the terms of the query topology; where none is declared or the traffic shows another, the inferred one, too
-- column: worker_order; hosts of a ring in the order in which data flows, or links of a star or tree; null for other shapes
-- column: workers hosts; number of workers
-- column: ranks_per_host from runs
-- column: steps steps; different steps in the run's logs; null without a log
-- The volume of a whole run depends on all of these. Order and root are inferred from the traffic (ring_order, topology);
-- asynchronous runs (step_synchrony) are apart from synchronous ones.
WITH thresholds AS (
    SELECT 0.5 AS heavy_share  -- of the heaviest pair's payload: a pair from here on is a link
), counted_workers AS (
    SELECT run_id, count(*) AS workers
    FROM hosts
    WHERE role = 'worker'
    GROUP BY run_id
), places AS (
    SELECT run_id, host_ip, host, place
    FROM host_names
), heavy AS (
    SELECT run_id, src_ip, dst_ip
    FROM pair_payload
    QUALIFY payload_bytes >= (SELECT heavy_share FROM thresholds) * max(payload_bytes) OVER (PARTITION BY run_id)
), links AS (
    SELECT h.run_id, string_agg(coalesce(a.host, src_ip) || ' - ' || coalesce(b.host, dst_ip), ', '
                                ORDER BY a.place NULLS LAST, src_ip, b.place NULLS LAST, dst_ip) AS links
    FROM heavy AS h
    LEFT JOIN places AS a ON a.run_id = h.run_id AND a.host_ip = src_ip
    LEFT JOIN places AS b ON b.run_id = h.run_id AND b.host_ip = dst_ip
    WHERE coalesce(a.place < b.place, src_ip < dst_ip)
    GROUP BY h.run_id
), rings AS (
    SELECT run_id, string_agg(coalesce(host, o.host_ip), ' > ' ORDER BY position) AS worker_order
    FROM ring_order AS o
    LEFT JOIN host_names USING (run_id, host_ip)
    WHERE is_ring
    GROUP BY run_id
), shapes AS (
    SELECT run_id, declared_topology, inferred_topology IN (SELECT topology FROM collective_laws() WHERE is_rooted) AS has_centre,
           coalesce(declared_as, declared_topology) AS declared, inferred_topology,
           inferred_topology <> 'unknown' AND (declared IS NULL OR declared_as IS NULL
               OR (problem IS NULL AND NOT agrees AND inferred_topology <> declared_as)) AS is_inferred
    FROM ring_comparison
), described AS (
    SELECT run_id, framework_setting, model, coalesce(model_bytes / 1e6, model_size_mb) AS model_mb,
           nullif(concat_ws(', ', CASE WHEN is_asynchronous THEN 'asynchronous' END, declared,
                            CASE WHEN is_inferred THEN inferred_topology || ' by the traffic' END), '') AS topology,
           coalesce(rings.worker_order, CASE WHEN has_centre THEN links END) AS worker_order,
           coalesce(runs.workers, counted_workers.workers) AS workers, ranks_per_host, steps
    FROM runs
    JOIN framework_settings USING (run_id)
    JOIN shapes USING (run_id)
    LEFT JOIN links USING (run_id)
    LEFT JOIN rings USING (run_id)
    LEFT JOIN (SELECT run_id, is_asynchronous FROM step_synchrony) USING (run_id)
    LEFT JOIN counted_workers USING (run_id)
    LEFT JOIN logged_steps USING (run_id)
), named AS (
    SELECT *, concat_ws(', ', framework_setting, topology, worker_order, workers || if(workers = 1, ' worker', ' workers')
                              || coalesce(' of ' || nullif(ranks_per_host, 1) || ' ranks', ''),
                        steps || if(steps = 1, ' step', ' steps')) AS setting
    FROM described
)
SELECT run_id, concat_ws(', ', setting, model, round(model_mb, 3) || ' MB') AS configuration, setting, framework_setting, model,
       model_mb, topology, worker_order, workers, ranks_per_host, steps
FROM named
ORDER BY run_id
