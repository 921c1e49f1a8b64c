-- question: Which runs have traffic beside their training job, which answers on the whole run mix with it?
-- subject: runs
-- row: a run in which a job is seen
-- inputs: flows, other_flows, jobs_of_run, beside_jobs
-- answer: other_share, between_bytes, problem
-- column: run_id from flows
-- column: jobs from jobs_of_run
-- column: other_bytes bytes; payload of flows with an end that is no host of a job
-- column: other_share share; other_bytes over the payload of all flows between hosts
-- column: src_ip from flows
-- column: dst_ip from flows
-- column: between_bytes bytes; payload between hosts of jobs of flows that are in no job, and do not answer one that is
-- column: between_from; address of the host that opened the connections between two hosts with most of these bytes, by port
-- column: between_to; address of the host that accepted them
-- column: between_port; its port there
-- column: problem; what is beside one job: several jobs (jobs_of_run), at least 1% of the payload with a host outside, or while it runs (beside_jobs) at least 1% of its own payload between its hosts; null where none is, and of a run that was interrupted on purpose
-- src_ip and dst_ip are the pair with most of other_bytes. What the hosts of a job send each other beside it in the whole capture, between_bytes, is no
-- problem by itself: before the first step it may be the first broadcast of the model (5% of the payload in a short run). Between the first step and the
-- last it is a checkpoint, or another program, as a copy of files: between_port tells. A run without a job has no row: nothing tells which of its traffic is training.
WITH thresholds AS (
    SELECT 0.01 AS least_share
), totals AS (
    SELECT run_id, sum(payload_bytes) AS payload_bytes
    FROM flows
    WHERE src_ip <> dst_ip
    GROUP BY run_id
), outside_pairs AS (
    SELECT run_id, src_ip, dst_ip, sum(payload_bytes) AS payload_bytes
    FROM other_flows
    WHERE is_outside
    GROUP BY run_id, src_ip, dst_ip
), outside AS (
    SELECT run_id, sum(payload_bytes) AS payload_bytes, arg_max((src_ip, dst_ip), (payload_bytes, src_ip, dst_ip)) AS busiest
    FROM outside_pairs
    GROUP BY run_id
), ports AS (
    SELECT run_id, from_ip, to_ip, to_port, sum(payload_bytes) AS payload_bytes
    FROM other_flows
    WHERE NOT is_outside
    GROUP BY run_id, from_ip, to_ip, to_port
), between_sums AS (
    SELECT run_id, count(*) AS ports, sum(payload_bytes)::BIGINT AS between_bytes,
           arg_max({'from_ip': from_ip, 'to_ip': to_ip, 'port': to_port}, (payload_bytes, from_ip, to_ip, to_port)) FILTER (payload_bytes > 0) AS most_between
    FROM ports
    GROUP BY run_id
), met AS (  -- while a job runs, between hosts of jobs
    SELECT run_id, arg_max({'from_ip': src_ip, 'to_ip': dst_ip, 'port': port, 'bytes': payload_bytes, 'share': share}, (payload_bytes, src_ip, dst_ip)) AS most_met
    FROM beside_jobs
    SEMI JOIN (FROM other_flows WHERE NOT is_outside) USING (run_id, src_ip, dst_ip)
    GROUP BY run_id
), sums AS (
    SELECT run_id, coalesce(o.payload_bytes, 0) AS other_bytes, other_bytes / nullif(t.payload_bytes, 0) AS other_share, busiest
    FROM totals AS t
    LEFT JOIN outside AS o USING (run_id)
)
SELECT run_id, jobs, other_bytes::BIGINT AS other_bytes, other_share, busiest[1] AS src_ip, busiest[2] AS dst_ip,
       CASE WHEN ports IS NULL THEN 0 ELSE between_bytes END AS between_bytes, most_between.from_ip AS between_from, most_between.to_ip AS between_to, most_between.port AS between_port,
       CASE WHEN is_interrupted THEN NULL
            WHEN j.problem IS NOT NULL THEN j.problem
            WHEN other_share >= least_share
            THEN format('{}% of the payload is to or from hosts outside the training job, most from {} to {}',
                        format(CASE WHEN other_share < 0.1 THEN '{:.2g}' ELSE '{:.0f}' END, 100 * other_share), busiest[1], busiest[2])
            WHEN most_met IS NOT NULL
            THEN format('{} MB ({}% of the training job''s bytes) go beside it between its hosts, from {} to {}{}', format(CASE WHEN most_met.bytes < 1e8 THEN '{:.3g}' ELSE '{:.0f}' END, most_met.bytes / 1e6),
                        format(CASE WHEN most_met.share < 0.1 THEN '{:.2g}' ELSE '{:.0f}' END, 100 * most_met.share), most_met.from_ip, most_met.to_ip,
                        coalesce(', port ' || most_met.port, '')) END AS problem
FROM jobs_of_run AS j
JOIN sums USING (run_id)
LEFT JOIN between_sums USING (run_id)
LEFT JOIN met USING (run_id)
CROSS JOIN thresholds
ORDER BY run_id
