-- question: Which hosts of a training job are parameter servers to all of its other hosts, by its collectives?
-- subject: servers
-- row: a run, a job and a host, of jobs with such servers
-- inputs: inferred_jobs
-- column: run_id from inferred_jobs
-- column: job from inferred_jobs
-- column: host_ip; address of the host
-- column: is_server; false: a worker
-- column: servers hosts; servers of the job
-- All collectives of such a job are sends. Each worker sends to each server and gets from it, and nothing else is sent; the servers are fewer
-- than the workers. A server gets what all send before it sends: one that answers each worker at once (asynchronous) is none, nor is the
-- stage of a pipeline between two others.
WITH sends AS (
    SELECT run_id, job, "position", hosts[1] AS src_ip, hosts[2] AS dst_ip
    FROM (SELECT *, bool_and(kind = 'send') OVER (PARTITION BY run_id, job) AS only_sends
          FROM (SELECT run_id, job, unnest(collectives, max_depth := 2) FROM inferred_jobs))
    WHERE only_sends
), partners AS (
    SELECT run_id, job, src_ip AS host_ip, list_sort(list_distinct(list(dst_ip))) AS peers
    FROM sends
    GROUP BY run_id, job, src_ip
), sides AS (
    SELECT run_id, job, peers, list_sort(list(host_ip)) AS members, count(*) OVER (PARTITION BY run_id, job) AS sides
    FROM partners
    GROUP BY run_id, job, peers
), jobs_with_servers AS (
    SELECT run_id, job, s.members AS servers, w.members AS workers
    FROM sides AS s
    JOIN sides AS w USING (run_id, job)
    WHERE s.sides = 2 AND s.peers = w.members AND w.peers = s.members AND len(s.members) < len(w.members)
), turns AS (  -- a step may begin at either
    SELECT run_id, job, server_ip, count(*) FILTER (is_sent <> coalesce(before, latest)) AS turns
    FROM (SELECT *, lag(is_sent) OVER of_server AS before, last_value(is_sent) OVER (of_server ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS latest
          FROM (SELECT run_id, job, "position", if(src_ip IN servers, src_ip, dst_ip) AS server_ip, src_ip IN servers AS is_sent
                FROM sends
                JOIN jobs_with_servers USING (run_id, job))
          WINDOW of_server AS (PARTITION BY run_id, job, server_ip ORDER BY "position"))
    GROUP BY run_id, job, server_ip
)
SELECT run_id, job, host_ip, host_ip IN servers AS is_server, len(servers) AS servers
FROM (SELECT *, unnest(servers || workers) AS host_ip FROM jobs_with_servers)
ANTI JOIN (SELECT run_id, job FROM turns WHERE turns > 2) USING (run_id, job)
ORDER BY run_id, job, host_ip
