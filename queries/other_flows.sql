-- question: Which flows between hosts are in no training job, and answer none?
-- subject: collectives
-- row: a run in which a job is seen, and such a flow
-- inputs: job_flows, flows
-- answer: src_ip, dst_ip, to_port, payload_bytes, is_outside
-- column: run_id from flows
-- column: flow_id from flows
-- column: src_ip from flows
-- column: dst_ip from flows
-- column: from_ip; address of the host that opened the connection, as far as the packets tell
-- column: to_ip; address of the host that accepted it
-- column: to_port; its port there
-- column: payload_bytes from flows
-- column: is_outside; whether an end of the flow is no host of a job
WITH own AS (
    SELECT run_id, flow_id, reverse_flow_id, src_ip, dst_ip
    FROM job_flows
    JOIN flows USING (run_id, flow_id)
), own_flows AS (
    SELECT DISTINCT run_id, unnest([flow_id, reverse_flow_id]) AS flow_id
    FROM own
), own_hosts AS (
    SELECT run_id, list(DISTINCT host_ip) AS host_ips
    FROM (SELECT run_id, unnest([src_ip, dst_ip]) AS host_ip FROM own)
    GROUP BY run_id
)
SELECT run_id, flow_id, src_ip, dst_ip, CASE WHEN is_initiator IS NOT FALSE THEN src_ip ELSE dst_ip END AS from_ip,
       CASE WHEN is_initiator IS NOT FALSE THEN dst_ip ELSE src_ip END AS to_ip, CASE WHEN is_initiator IS NOT FALSE THEN dst_port ELSE src_port END AS to_port,
       payload_bytes, NOT list_has_all(host_ips, [src_ip, dst_ip]) AS is_outside
FROM flows
ANTI JOIN own_flows USING (run_id, flow_id)
JOIN own_hosts USING (run_id)
WHERE src_ip <> dst_ip
ORDER BY run_id, flow_id
