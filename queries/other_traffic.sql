-- question: Which runs have traffic beside their training job, which answers on the whole run mix with it?
-- subject: runs
-- row: a run in which a job is seen
-- inputs: job_flows, flows, jobs_of_run
-- answer: other_share, problem
-- column: run_id from job_flows
-- column: jobs from jobs_of_run
-- column: other_bytes bytes; payload of flows with an end that is no host of a job; those between its hosts are not examined
-- column: other_share share; other_bytes over the payload of all flows between hosts
-- column: src_ip from flows
-- column: dst_ip from flows
-- column: problem; what is beside one job: several jobs (jobs_of_run), or at least 1% of the payload; null where neither is, and of a run that was interrupted on purpose
-- src_ip and dst_ip are the pair with most of these bytes. What the hosts of a job send each other is no other traffic, on any port and at
-- any time: a first broadcast of the model, a checkpoint, and also a copy of files, which data_flows and flows show by its ports. A run without a job has no row: nothing tells which of its traffic is training.
WITH thresholds AS (
    SELECT 0.01 AS least_share
), job_hosts AS (
    SELECT DISTINCT run_id, unnest([src_ip, dst_ip]) AS host_ip
    FROM job_flows
    JOIN flows USING (run_id, flow_id)
), pairs AS (
    SELECT f.run_id, src_ip, dst_ip, a.host_ip IS NULL OR b.host_ip IS NULL AS is_other, sum(payload_bytes) AS payload_bytes
    FROM flows AS f
    LEFT JOIN job_hosts AS a ON a.run_id = f.run_id AND a.host_ip = src_ip
    LEFT JOIN job_hosts AS b ON b.run_id = f.run_id AND b.host_ip = dst_ip
    WHERE src_ip <> dst_ip
    GROUP BY ALL
), sums AS (
    SELECT run_id, coalesce(sum(payload_bytes) FILTER (is_other), 0) AS other_bytes, other_bytes / nullif(sum(payload_bytes), 0) AS other_share,
           arg_max((src_ip, dst_ip), (payload_bytes, src_ip, dst_ip)) FILTER (is_other) AS busiest
    FROM pairs
    GROUP BY run_id
)
SELECT run_id, jobs, other_bytes::BIGINT AS other_bytes, other_share, busiest[1] AS src_ip, busiest[2] AS dst_ip,
       CASE WHEN is_interrupted THEN NULL
            WHEN j.problem IS NOT NULL THEN j.problem
            WHEN other_share >= least_share
            THEN format('{}% of the payload is to or from hosts outside the training job, most from {} to {}',
                        format(CASE WHEN other_share < 0.1 THEN '{:.2g}' ELSE '{:.0f}' END, 100 * other_share), busiest[1], busiest[2]) END AS problem
FROM jobs_of_run AS j
JOIN sums USING (run_id)
CROSS JOIN thresholds
ORDER BY run_id
