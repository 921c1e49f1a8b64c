-- question: What do hosts of a training job send or get beside it, while it runs?
-- subject: collectives
-- row: a run, a job, a directed pair of hosts and a port, over which goes at least 1% of the job's bytes
-- inputs: hosts, flows, flow_windows, job_flows, collective_transfers, other_flows
-- answer: src_ip, dst_ip, port, payload_bytes, share
-- column: run_id from job_flows
-- column: job from job_flows
-- column: src_ip from other_flows
-- column: dst_ip from other_flows
-- column: port; port of the host that accepted the connections
-- column: payload_bytes bytes; payload of other_flows from one host to the other in windows that begin between the first and the last data of the job's steps
-- column: share ratio; payload_bytes over all payload of the job's flows
-- column: sentence; the finding in words
-- What goes before the first step, as the model's first broadcast, or behind the last one is left out, and so are flows of less than 0.1% of the job's bytes.
-- The first row of a job is the one with most bytes.
WITH thresholds AS (
    SELECT 0.01 AS least_share, 0.001 AS least_of_flow
), job_sizes AS (
    SELECT run_id, job, sum(payload_bytes) AS job_bytes, list_distinct(flatten(list([src_ip, dst_ip]))) AS host_ips
    FROM job_flows
    JOIN flows USING (run_id, flow_id)
    GROUP BY run_id, job
), candidates AS MATERIALIZED (  -- without times, of which there are many
    SELECT run_id, job, job_bytes, flow_id, src_ip, dst_ip, to_port AS port
    FROM other_flows
    JOIN job_sizes USING (run_id)
    CROSS JOIN thresholds
    WHERE payload_bytes > least_of_flow * job_bytes AND list_has_any(host_ips, [src_ip, dst_ip])
), times AS (
    SELECT run_id, job, min(first_ns) AS start_ns, max(last_ns) AS end_ns
    FROM collective_transfers
    GROUP BY run_id, job
), sums AS (
    SELECT run_id, job, src_ip, dst_ip, port, sum(payload_bytes)::BIGINT AS payload_bytes, sum(payload_bytes) / any_value(job_bytes) AS share
    FROM candidates
    JOIN times USING (run_id, job)
    JOIN flow_windows USING (run_id, flow_id)
    WHERE window_start_ns BETWEEN start_ns AND end_ns
    GROUP BY run_id, job, src_ip, dst_ip, port
)
SELECT s.*,
       format('{} MB ({}% of its bytes) go beside it from {} to {}{}.', format(CASE WHEN payload_bytes < 1e8 THEN '{:.3g}' ELSE '{:.0f}' END, payload_bytes / 1e6),
              format(CASE WHEN share < 0.1 THEN '{:.2g}' ELSE '{:.0f}' END, 100 * share), coalesce(a.label, src_ip), coalesce(b.label, dst_ip),
              CASE WHEN port IS NULL THEN '' ELSE format(', port {}', port) END) AS sentence
FROM sums AS s
LEFT JOIN hosts AS a ON a.run_id = s.run_id AND a.host_ip = src_ip
LEFT JOIN hosts AS b ON b.run_id = s.run_id AND b.host_ip = dst_ip
CROSS JOIN thresholds
WHERE share >= least_share
ORDER BY s.run_id, job, payload_bytes DESC, src_ip, dst_ip, port
