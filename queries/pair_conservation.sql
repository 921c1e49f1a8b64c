-- question: Does each pair of hosts transmit in each step what the algorithm must move between them?
-- subject: topology
-- row: a run, a step and a directed pair of hosts that carries the exchange
-- inputs: step_pairs, topology_edges, conservation, collective_laws
-- answer: step, src_ip, dst_ip, share_of_expected
-- column: run_id
-- column: step
-- column: src_ip
-- column: dst_ip
-- column: expected_by; law: the algorithm fixes what each pair moves; share: it fixes only the sum, shared out as measured over the run
-- column: expected_bytes bytes; payload that the pair must move in a step
-- column: payload_bytes bytes; payload that it moved inside the step
-- column: difference_bytes bytes; payload_bytes - expected_bytes
-- column: share_of_expected ratio; payload_bytes over expected_bytes
-- column: header_bytes bytes; wire bytes less payload of the pair in the step
-- The law is the one that conservation chose; the pairs share its sum as collective_laws says. A step ends where the
-- sender's log ends it, which may be before its last byte is sent. What is missing in one step is then too much in the
-- next.
WITH laws AS MATERIALIZED (
    SELECT c.*, partner_ratio, server_ratio, most_edges
    FROM conservation() AS c
    JOIN LATERAL (FROM collective_laws(hosts := c.hosts)) AS l ON l.topology = c.topology AND l.law = c.law
    WHERE expected_bytes IS NOT NULL
), edges AS MATERIALIZED (
    SELECT e.run_id, src_ip, dst_ip, e.payload_bytes::DOUBLE AS bytes,
           count(*) OVER (PARTITION BY e.run_id) AS edge_count,
           count(*) OVER (PARTITION BY e.run_id, src_ip) AS partners,
           count(*) OVER (PARTITION BY e.run_id, dst_ip) AS partners_of_other
    FROM topology_edges AS e
    JOIN laws USING (run_id, level)
), ranked AS (
    SELECT *, bytes / sum(bytes) OVER (PARTITION BY run_id) AS share,
           row_number() OVER (PARTITION BY run_id, src_ip, partners_of_other > 1 ORDER BY bytes DESC, dst_ip) - 1 AS place
    FROM edges
), weighed AS (
    SELECT run_id, src_ip, dst_ip, share, model_bytes, total_factor,
           partner_ratio IS NOT NULL AND server_ratio = 1 AND edge_count <= coalesce(most_edges, edge_count) AS by_law,
           CASE WHEN partners > 1 AND partners_of_other > 1 THEN partner_ratio ** place ELSE 1 END AS weight
    FROM ranked
    JOIN laws USING (run_id)
), expected AS (
    SELECT run_id, src_ip, dst_ip, by_law,
           model_bytes * CASE WHEN by_law THEN total_factor * weight / sum(weight) OVER (PARTITION BY run_id)
                              ELSE total_factor * share END AS bytes_a_step
    FROM weighed
), measured AS (
    SELECT run_id, step, src_ip, dst_ip, payload_bytes AS payload, wire_bytes AS wire
    FROM step_pairs
), run_steps AS (
    SELECT DISTINCT run_id, step FROM measured
)
SELECT run_id, step, src_ip, dst_ip, CASE WHEN by_law THEN 'law' ELSE 'share' END AS expected_by,
       round(bytes_a_step)::BIGINT AS expected_bytes, coalesce(payload, 0)::BIGINT AS payload_bytes,
       round(coalesce(payload, 0) - bytes_a_step)::BIGINT AS difference_bytes,
       coalesce(payload, 0) / bytes_a_step AS share_of_expected,
       coalesce(wire - payload, 0)::BIGINT AS header_bytes
FROM expected
JOIN run_steps USING (run_id)
LEFT JOIN measured USING (run_id, step, src_ip, dst_ip)
ORDER BY run_id, step, src_ip, dst_ip
