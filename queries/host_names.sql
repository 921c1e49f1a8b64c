-- question: What is each host called in a figure?
-- subject: runs
-- row: a host in a run
-- inputs: hosts
-- figure: zerwas fig. 4 (W1, Ch.)
-- column: run_id
-- column: host_ip
-- column: host; short name: W1 for worker-1, Ch. for a chief, PS for a parameter server, else the label, else the address, of one longer than 15 characters only so many of its last groups as tell the run's hosts apart (…:1a2b); with a number where several would have the same
-- column: place; number of the host in its run by rank, from 1
WITH groups AS (
    SELECT run_id, host_ip, string_split(host_ip, ':') AS parts, length(host_ip) > 15 AS is_long
    FROM hosts
    WHERE label IS NULL AND coalesce(role, 'other') NOT IN ('chief', 'parameter_server')
), ends AS (
    SELECT run_id, host_ip, is_long, kept, array_to_string(parts[-kept:], ':') AS tail
    FROM groups
    CROSS JOIN (SELECT unnest([1, 2, 4]) AS kept)
), clear AS (  -- so many groups that no two ends are the same
    SELECT run_id, min(kept) AS kept
    FROM (SELECT run_id, kept FROM ends GROUP BY run_id, kept HAVING count(DISTINCT tail) = count(*))
    GROUP BY run_id
), cut AS (
    SELECT run_id, host_ip, '…:' || tail AS end_name
    FROM ends
    JOIN clear USING (run_id, kept)
    WHERE is_long
), short AS (
    SELECT run_id, host_ip, rank,
           CASE WHEN role = 'chief' THEN 'Ch.'
                WHEN role = 'parameter_server' THEN 'PS'
                WHEN regexp_full_match(label, 'worker-\d+') THEN 'W' || label[8:]
                ELSE coalesce(label, end_name, host_ip)
           END AS name
    FROM hosts
    LEFT JOIN cut USING (run_id, host_ip)
)
SELECT run_id, host_ip,
       CASE WHEN count(*) OVER (PARTITION BY run_id, name) = 1 THEN name
            ELSE name || ' ' || row_number() OVER (PARTITION BY run_id, name ORDER BY rank NULLS LAST, length(host_ip), host_ip)
       END AS host,
       row_number() OVER (PARTITION BY run_id ORDER BY rank NULLS LAST, length(host_ip), host_ip) AS place
FROM short
ORDER BY run_id, place
