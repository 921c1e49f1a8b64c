-- question: How many steps has each training job, and how even are they?
-- subject: collectives
-- row: a run and a job
-- inputs: flows, captures, job_flows, collective_transfers
-- column: run_id from job_flows
-- column: job from job_flows
-- column: hosts; addresses of the hosts that its flows connect, sorted, with commas between
-- column: flows flows; flows that carry its data
-- column: steps steps; steps of which the captures have all bytes
-- column: period_ms ms; median time from the end of a step to the end of the next
-- column: steady_share share; part of the steps whose time is within a factor of 2 of period_ms
-- column: seen_share share; part of the hosts that a capture was taken at; 1 where one was taken between them
-- Apart from jobs, since the steps that jobs compares with cost more than all this.
WITH ends AS (
    SELECT run_id, job, step, max(last_ns) AS end_ns
    FROM collective_transfers
    GROUP BY run_id, job, step
), times AS (
    SELECT run_id, job, end_ns - lag(end_ns) OVER (PARTITION BY run_id, job ORDER BY step) AS period_ns
    FROM ends
), periods AS (
    SELECT run_id, job, count(*) AS steps, median(period_ns) AS usual_ns,
           list(period_ns) FILTER (period_ns IS NOT NULL) AS times_ns
    FROM times
    GROUP BY run_id, job
), hosts_of_jobs AS (
    SELECT run_id, job, count(DISTINCT flow_id) AS flows, list_sort(list_distinct(flatten(list([src_ip, dst_ip])))) AS hosts
    FROM job_flows
    JOIN flows USING (run_id, flow_id)
    GROUP BY run_id, job
), vantages AS (
    SELECT run_id, list(DISTINCT vantage_ip) AS host_ips, bool_or(vantage_ip IS NULL) AS is_between
    FROM captures
    GROUP BY run_id
)
SELECT run_id, job, array_to_string(hosts, ',') AS hosts, flows, steps, usual_ns / 1e6 AS period_ms,
       len(list_filter(times_ns, lambda t: t BETWEEN usual_ns / 2 AND 2 * usual_ns)) / len(times_ns) AS steady_share,
       CASE WHEN is_between THEN 1.0 ELSE len(list_intersect(hosts, host_ips)) / len(hosts) END AS seen_share
FROM hosts_of_jobs
JOIN periods USING (run_id, job)
LEFT JOIN vantages USING (run_id)
ORDER BY run_id, job
