-- question: Which capture filter separates each job of a run that holds several?
-- subject: runs
-- row: a run with several jobs, and a job
-- inputs: job_flows, flows
-- answer: job, filter, problem
-- column: run_id from job_flows
-- column: job from job_flows
-- column: filter; expression for ingest --filter that keeps all flows of the job and none of the other jobs; null where there is none
-- column: problem; why no filter separates the job; null where one does
-- A job whose hosts are in no other job is told by its hosts, else by ports that no flow of another job has: of the two ports of
-- a flow the one that more flows of the job have. The filter by ports leaves out what belongs to no job, such as logins.
WITH members AS (
    SELECT run_id, job, src_ip, dst_ip, nullif(port, 0) AS port, flow_id
    FROM (
        SELECT run_id, job, flow_id, src_ip, dst_ip, unnest([src_port, dst_port]) AS port
        FROM job_flows
        JOIN flows USING (run_id, flow_id)
    )
    WHERE run_id IN (SELECT run_id FROM job_flows GROUP BY run_id HAVING count(DISTINCT job) > 1)
), hosts_of_jobs AS (
    SELECT DISTINCT run_id, job, unnest([src_ip, dst_ip]) AS host_ip
    FROM members
), by_hosts AS (  -- jobs that share no host
    SELECT run_id, job, 'host ' || string_agg(host_ip, ' or ' ORDER BY length(host_ip), host_ip) AS expression,
           bool_and(sharers = 1) AS separates
    FROM (SELECT *, count(*) OVER (PARTITION BY run_id, host_ip) AS sharers FROM hosts_of_jobs)
    GROUP BY run_id, job
), port_uses AS (
    SELECT run_id, job, port, count(DISTINCT flow_id) AS uses,
           count(*) OVER (PARTITION BY run_id, port) AS sharers
    FROM members
    WHERE port IS NOT NULL
    GROUP BY run_id, job, port
), chosen AS (  -- for each flow one of its ports, if any, that no other job has
    SELECT run_id, job, m.flow_id, p.port
    FROM members AS m
    LEFT JOIN (FROM port_uses WHERE sharers = 1) AS p USING (run_id, job, port)
    QUALIFY row_number() OVER (PARTITION BY run_id, job, m.flow_id ORDER BY uses DESC NULLS LAST, port) = 1
), by_ports AS (
    SELECT run_id, job, 'port ' || string_agg(DISTINCT port, ' or ' ORDER BY port) AS expression, count(*) = count(port) AS separates
    FROM chosen
    GROUP BY run_id, job
)
SELECT run_id, job,
       CASE WHEN h.separates THEN h.expression WHEN p.separates THEN p.expression END AS filter,
       CASE WHEN NOT h.separates AND NOT p.separates
            THEN 'another job has the same hosts, and flows with the same ports: a filter knows no more of a packet' END AS problem
FROM by_hosts AS h
JOIN by_ports AS p USING (run_id, job)
ORDER BY run_id, job
