-- question: How much do hosts send to each other in each configuration, averaged over its runs?
-- subject: volume
-- row: a configuration of known topology and model, and a directed pair of hosts (run_hosts) that sent something in one of its runs
-- inputs: run_configurations, run_settings, traffic_matrix, step_pairs, host_names, run_hosts
-- param: chosen_runs VARCHAR = NULL; only runs whose name matches this pattern (GLOB: * any text, ? any character); NULL: all
-- param: models VARCHAR = pooled; pooled: runs of different models and numbers of steps are one configuration, as in the paper's figure; apart: they are not
-- figure: zerwas fig. 4 (averaged over all models)
-- column: configuration; what is equal in its runs (run_configurations); with models pooled neither model nor steps
-- column: runs runs; runs of the configuration
-- column: pooled; settings in which these runs differ, with their values (run_settings); null where there are none
-- column: src_place; number of the sender among the configuration's hosts, from 1
-- column: src_host; sender, by its name in figures
-- column: dst_place; number of the receiver
-- column: dst_host; receiver, by its name in figures
-- column: mean_step_wire_bytes bytes; wire bytes from sender to receiver in a step, mean over the runs; null where a run has no traffic in steps
-- column: mean_step_payload_bytes bytes; payload in a step, mean over the runs; null as mean_step_wire_bytes
-- column: mean_wire_bytes bytes; wire bytes from sender to receiver in a whole run, mean over the runs
-- column: mean_payload_bytes bytes; payload in a whole run, mean over the runs
-- column: share_of_volume share; part of the configuration's wire bytes
-- A run whose topology or model is not known is in no mean: nothing says that it is alike another.
-- Rings of another order and other topologies are configurations of their own; so are other models and numbers of steps
-- with models apart. Hosts of several runs are the same where host_names gives them the same name. A pair that is missing
-- in a run sent nothing in it. One configuration of every topology, that of the most runs, comes before the second of any.
WITH configured AS MATERIALIZED (
    SELECT run_id,
           CASE $models WHEN 'apart' THEN configuration
                        WHEN 'pooled' THEN concat_ws(', ', framework_setting, topology, worker_order, workers || if(workers = 1, ' worker', ' workers')
                                                     || coalesce(' of ' || nullif(ranks_per_host, 1) || ' ranks', ''))
                        ELSE error('models is apart or pooled, not ' || $models) END AS configuration,
           steps, topology
    FROM run_configurations
    WHERE topology IS NOT NULL AND coalesce(model, model_mb::VARCHAR) IS NOT NULL AND run_id IN (SELECT run_id FROM traffic_matrix) AND ($chosen_runs IS NULL OR run_id GLOB $chosen_runs)
), in_steps AS MATERIALIZED (
    SELECT run_id, src_ip, dst_ip, sum(wire_bytes) / any_value(steps) AS wire_bytes,
           sum(payload_bytes) / any_value(steps) AS payload_bytes
    FROM step_pairs
    JOIN configured USING (run_id)
    GROUP BY run_id, src_ip, dst_ip
), configurations AS (
    SELECT configuration, count(*) AS runs, bool_and(run_id IN (SELECT run_id FROM in_steps)) AS has_steps,
           row_number() OVER (PARTITION BY any_value(topology) ORDER BY count(*) DESC, configuration) AS of_its_kind
    FROM configured
    GROUP BY configuration
), differing AS (
    SELECT configuration, setting, string_agg(DISTINCT value, ', ' ORDER BY value) AS found
    FROM run_settings
    JOIN configured USING (run_id)
    GROUP BY configuration, setting
    HAVING count(DISTINCT value) > 1
), pooled AS (
    SELECT configuration, string_agg(setting || ' ' || found, '; ' ORDER BY setting) AS pooled
    FROM differing
    GROUP BY configuration
), counting AS MATERIALIZED (
    SELECT run_id, host_ip, host
    FROM host_names
    SEMI JOIN run_hosts USING (run_id, host_ip)
), pairs AS (
    SELECT configuration, src.host AS src_host, dst.host AS dst_host,
           sum(m.wire_bytes) AS wire_bytes,
           CASE WHEN count(m.payload_bytes) = count(*) THEN sum(m.payload_bytes) END AS payload_bytes,
           coalesce(sum(s.wire_bytes), 0) AS step_wire_bytes,
           CASE WHEN count(m.payload_bytes) = count(*) THEN coalesce(sum(s.payload_bytes), 0) END AS step_payload_bytes
    FROM traffic_matrix AS m
    JOIN configured USING (run_id)
    LEFT JOIN in_steps AS s ON s.run_id = m.run_id AND s.src_ip = m.src_ip AND s.dst_ip = m.dst_ip
    JOIN counting AS src ON src.run_id = m.run_id AND src.host_ip = m.src_ip
    JOIN counting AS dst ON dst.run_id = m.run_id AND dst.host_ip = m.dst_ip
    GROUP BY ALL
), totals AS (  -- of all addresses
    SELECT configuration, sum(wire_bytes) AS all_bytes
    FROM traffic_matrix
    JOIN configured USING (run_id)
    GROUP BY configuration
), named AS (
    SELECT configuration, host, min(place) AS least_place
    FROM host_names
    JOIN configured USING (run_id)
    GROUP BY ALL
), ends AS (
    SELECT configuration, src_host AS host FROM pairs
    UNION
    SELECT configuration, dst_host FROM pairs
), placed AS (
    SELECT configuration, host,
           row_number() OVER (PARTITION BY configuration ORDER BY least_place NULLS LAST, length(host), host) AS place
    FROM ends
    LEFT JOIN named USING (configuration, host)
)
SELECT configuration, runs, pooled, src.place AS src_place, src_host, dst.place AS dst_place, dst_host,
       CASE WHEN has_steps THEN step_wire_bytes / runs END AS mean_step_wire_bytes,
       CASE WHEN has_steps THEN step_payload_bytes / runs END AS mean_step_payload_bytes,
       wire_bytes / runs AS mean_wire_bytes,
       payload_bytes / runs AS mean_payload_bytes,
       wire_bytes / all_bytes AS share_of_volume
FROM pairs
JOIN totals USING (configuration)
JOIN configurations USING (configuration)
LEFT JOIN pooled USING (configuration)
JOIN placed AS src USING (configuration)
JOIN placed AS dst USING (configuration)
WHERE src.host = src_host AND dst.host = dst_host
ORDER BY of_its_kind, configuration, src_place, dst_place
