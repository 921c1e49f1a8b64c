-- question: Which hosts of a run are parameter servers?
-- subject: servers
-- row: a run and a parameter server
-- inputs: runs, hosts, flows, flow_step_payload
-- figure: chang section 2 (n parameter servers)
-- column: run_id from hosts
-- column: host_ip; address of the parameter server
-- column: known_by; role: declared to be one; traffic: inferred
-- column: payload_share share; part of the run's payload that the host sends or receives
-- Where none is declared and the declared topology is star or parameter_server, the server is the one host that is an
-- end of at least 95% of the payload: of the payload in steps, or of all where no step has any. Two hosts that send
-- only to each other cannot be distinguished, and have none.
WITH thresholds AS (
    SELECT 0.95 AS central_share  -- of the payload: what one host sends or receives, at least, to be the server
), flow_payload AS (
    SELECT run_id, src_ip, dst_ip,
           CASE WHEN sum(step_payload_bytes) OVER (PARTITION BY run_id) > 0 THEN coalesce(step_payload_bytes, 0)
                ELSE payload_bytes END AS payload
    FROM flows
    LEFT JOIN flow_step_payload USING (run_id, flow_id)
), ends AS (
    SELECT run_id, src_ip AS host_ip, payload FROM flow_payload
    UNION ALL
    SELECT run_id, dst_ip, payload FROM flow_payload WHERE dst_ip <> src_ip
), totals AS (
    SELECT run_id, sum(payload) AS total
    FROM flow_payload
    GROUP BY run_id
), shares AS (
    SELECT run_id, host_ip, sum(payload) / nullif(any_value(total), 0) AS payload_share
    FROM ends
    JOIN totals USING (run_id)
    GROUP BY run_id, host_ip
), declared AS (
    SELECT run_id, host_ip
    FROM hosts
    WHERE role = 'parameter_server'
), central AS (
    SELECT run_id, host_ip
    FROM shares
    JOIN runs USING (run_id)
    CROSS JOIN thresholds
    WHERE topology IN ('star', 'parameter_server') AND payload_share >= central_share
      AND run_id NOT IN (SELECT run_id FROM declared)
    QUALIFY count(*) OVER (PARTITION BY run_id) = 1
), servers AS (
    SELECT run_id, host_ip, 'role' AS known_by FROM declared
    UNION ALL
    SELECT run_id, host_ip, 'traffic' FROM central
)
SELECT run_id, host_ip, known_by, payload_share
FROM servers
LEFT JOIN shares USING (run_id, host_ip)
ORDER BY run_id, host_ip
