-- question: Which flows carry data between the workers and the parameter servers of a run?
-- subject: servers
-- row: a run and a flow
-- inputs: flows, flow_step_payload, hosts, parameter_servers
-- figure: chang section 3 (aggregation and distribution)
-- column: run_id
-- column: flow_id from flows
-- column: phase; aggregation: to a server; distribution: from a server
-- column: server_ip; address of the parameter server
-- column: worker_ip; address of the worker
-- column: worker; label of the worker; null where it has none
-- column: step_payload_bytes
-- Flows between two servers are in neither phase, and a chief is no worker: what it sends starts training. A flow carries data when its payload in steps is at least 1% of that
-- of the run's heaviest such flow: requests, barriers and acknowledgements are not transfers. Connections on the same
-- ports stay separate, as in flows.
WITH thresholds AS (
    SELECT 0.01::DOUBLE AS data_share  -- of the heaviest flow's payload: a flow from here on carries data
), servers AS (
    FROM parameter_servers
), directed AS (
    SELECT f.run_id, f.flow_id, step_payload_bytes,
           CASE WHEN dst.host_ip IS NOT NULL THEN 'aggregation' ELSE 'distribution' END AS phase,
           coalesce(dst.host_ip, src.host_ip) AS server_ip,
           CASE WHEN dst.host_ip IS NOT NULL THEN src_ip ELSE dst_ip END AS worker_ip
    FROM flows AS f
    JOIN flow_step_payload USING (run_id, flow_id)
    LEFT JOIN servers AS src ON src.run_id = f.run_id AND src.host_ip = src_ip
    LEFT JOIN servers AS dst ON dst.run_id = f.run_id AND dst.host_ip = dst_ip
    WHERE (src.host_ip IS NULL) <> (dst.host_ip IS NULL)
)
SELECT directed.run_id, flow_id, phase, server_ip, worker_ip, label AS worker, step_payload_bytes
FROM directed
LEFT JOIN hosts ON hosts.run_id = directed.run_id AND hosts.host_ip = worker_ip
CROSS JOIN thresholds
WHERE role IS DISTINCT FROM 'chief'
QUALIFY step_payload_bytes > 0 AND step_payload_bytes >= data_share * max(step_payload_bytes) OVER (PARTITION BY directed.run_id)
ORDER BY directed.run_id, flow_id
