-- question: How much do hosts send to each other in each configuration, averaged over its runs?
-- row: a configuration and a directed pair of hosts that sent something in one of its runs
-- inputs: runs, traffic_matrix, host_names, framework_settings
-- param: chosen_runs VARCHAR = NULL; only runs whose name matches this pattern (GLOB: * any text, ? any character); NULL: all
-- figure: zerwas fig. 4 (averaged over all models)
-- column: configuration; framework setting, and declared topology unless that is pair averaging
-- column: runs runs; runs of the configuration
-- column: src_place; number of the sender among the configuration's hosts, from 1
-- column: src_host; sender, by its name in figures
-- column: dst_place; number of the receiver
-- column: dst_host; receiver, by its name in figures
-- column: mean_wire_bytes bytes; wire bytes from sender to receiver, mean over the runs
-- column: mean_payload_bytes bytes; payload, mean over the runs
-- column: share_of_volume share; part of the configuration's wire bytes
-- Hosts of several runs are the same where host_names gives them the same name. A pair that is missing in a run sent
-- nothing in it.
WITH configured AS (
    SELECT run_id,
           framework_setting || CASE WHEN topology <> 'pair_averaging' THEN ', ' || topology ELSE '' END AS configuration
    FROM runs
    JOIN framework_settings USING (run_id)
    WHERE run_id IN (SELECT run_id FROM traffic_matrix) AND ($chosen_runs IS NULL OR run_id GLOB $chosen_runs)
), configurations AS (
    SELECT configuration, count(*) AS runs
    FROM configured
    GROUP BY configuration
), pairs AS (  -- a multicast address is an end of pairs, but no host
    SELECT configuration, coalesce(src.host, src_ip) AS src_host, coalesce(dst.host, dst_ip) AS dst_host,
           sum(wire_bytes) AS wire_bytes, sum(payload_bytes) AS payload_bytes
    FROM traffic_matrix AS m
    JOIN configured USING (run_id)
    LEFT JOIN host_names AS src ON src.run_id = m.run_id AND src.host_ip = m.src_ip
    LEFT JOIN host_names AS dst ON dst.run_id = m.run_id AND dst.host_ip = m.dst_ip
    GROUP BY ALL
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
SELECT configuration, runs, src.place AS src_place, src_host, dst.place AS dst_place, dst_host,
       wire_bytes / runs AS mean_wire_bytes,
       payload_bytes / runs AS mean_payload_bytes,
       wire_bytes / sum(wire_bytes) OVER (PARTITION BY configuration) AS share_of_volume
FROM pairs
JOIN configurations USING (configuration)
JOIN placed AS src USING (configuration)
JOIN placed AS dst USING (configuration)
WHERE src.host = src_host AND dst.host = dst_host
ORDER BY configuration, src_place, dst_place
