-- question: What is each host called in a figure?
-- subject: runs
-- row: a host in a run
-- inputs: hosts
-- figure: zerwas fig. 4 (W1, Ch.)
-- column: run_id
-- column: host_ip
-- column: host; short name: W1 for worker-1, Ch. for a chief, PS for a parameter server, else the label, else the address; with a number where several would have the same
-- column: place; number of the host in its run by rank, from 1
WITH short AS (
    SELECT run_id, host_ip, rank,
           CASE WHEN role = 'chief' THEN 'Ch.'
                WHEN role = 'parameter_server' THEN 'PS'
                WHEN regexp_full_match(label, 'worker-\d+') THEN 'W' || label[8:]
                ELSE coalesce(label, host_ip)
           END AS name
    FROM hosts
)
SELECT run_id, host_ip,
       CASE WHEN count(*) OVER (PARTITION BY run_id, name) = 1 THEN name
            ELSE name || ' ' || row_number() OVER (PARTITION BY run_id, name ORDER BY rank NULLS LAST, length(host_ip), host_ip)
       END AS host,
       row_number() OVER (PARTITION BY run_id ORDER BY rank NULLS LAST, length(host_ip), host_ip) AS place
FROM short
ORDER BY run_id, place
