-- question: Do the pairs of an inferred topology send what its law makes them send?
-- subject: topology
-- row: a run whose topology is known
-- inputs: runs, hosts, flows, step_flows, pair_payload, topology_edges, exchange_laws, collective_laws
-- optional: step_flows
-- column: run_id from hosts
-- column: law; law of the exchange (exchange_laws) that is nearest to what was sent; null without model_bytes or a log
-- column: volume_ratio ratio; payload of the pairs over model_bytes times the law's total_factor times the steps with payload; null without model_bytes or a log
-- column: misplaced_share share; part of the pairs' payload that is on other pairs than the law would have it; null where it fixes only the sum
-- column: idle_hosts hosts; workers and parameter servers that take no part in the exchange
-- Of the pairs that carry the exchange (in pair averaging all pairs), payload without retransmissions. A pair's payload is
-- what it sent inside steps and, of what it sent after them, at most as much as in a mean step: data still waits in the
-- sockets when the end of a step is logged. Steps are those with payload: a log may be longer than a capture that was cut
-- off.
-- What a pair sends relative to the others by the law: partner_ratio, server_ratio and most_edges of collective_laws.
WITH laws AS MATERIALIZED (
    SELECT e.*, partner_ratio, server_ratio, most_edges
    FROM exchange_laws AS e
    JOIN LATERAL (FROM collective_laws(hosts := e.hosts)) AS l ON l.topology = e.topology AND l.law = e.law
), shapes AS (  -- the laws of a run share out their sums alike
    SELECT run_id, any_value(topology) AS topology, any_value(level) AS level, any_value(hosts) AS hosts,
           any_value(partner_ratio) AS partner_ratio, any_value(server_ratio) AS server_ratio, any_value(most_edges) AS most_edges
    FROM laws
    GROUP BY run_id
), payload AS MATERIALIZED (
    FROM pair_payload
), flow_sums AS (
    SELECT run_id, flow_id, coalesce(sum(payload_bytes) FILTER (position = 'during'), 0) AS inside,
           coalesce(sum(payload_bytes) FILTER (position = 'after'), 0) AS after_steps
    FROM step_flows
    GROUP BY run_id, flow_id
), pair_sums AS (
    SELECT run_id, src_ip, dst_ip, sum(inside * fresh) AS inside, sum(after_steps * fresh) AS after_steps,
           sum(payload_bytes * fresh) AS whole
    FROM (
        SELECT *, 1 - coalesce(retransmitted_bytes / nullif(payload_bytes, 0), 0) AS fresh
        FROM flows
        LEFT JOIN flow_sums USING (run_id, flow_id)
    )
    GROUP BY run_id, src_ip, dst_ip
), matched_pairs AS (
    SELECT run_id, src_ip, dst_ip
    FROM topology_edges
    JOIN shapes USING (run_id, level)
    WHERE topology <> 'pair_averaging'
    UNION ALL
    SELECT run_id, src_ip, dst_ip
    FROM payload
    JOIN shapes USING (run_id)
    WHERE topology = 'pair_averaging'
), sent AS (
    SELECT run_id, src_ip, dst_ip, by_steps, steps,
           CASE WHEN by_steps THEN inside + least(after_steps, inside / steps) ELSE whole END AS bytes
    FROM matched_pairs
    JOIN pair_sums USING (run_id, src_ip, dst_ip)
    JOIN payload USING (run_id, src_ip, dst_ip)
), placed AS (
    SELECT *, count(*) OVER (PARTITION BY run_id) AS edge_count, count(*) OVER (PARTITION BY run_id, src_ip) AS outs,
           count(*) OVER (PARTITION BY run_id, dst_ip) AS ins
    FROM sent
), weighed AS (  -- pairs send in proportion to their weights
    SELECT run_id, bytes,
           CASE WHEN outs > 1 AND ins > 1
                THEN partner_ratio ** (row_number() OVER (PARTITION BY run_id, src_ip, ins > 1 ORDER BY bytes DESC, dst_ip) - 1)
                ELSE 1 END
               * CASE WHEN outs = hosts - 1 AND ins = hosts - 1 THEN server_ratio ELSE 1 END AS weight
    FROM placed
    JOIN shapes USING (run_id)
    WHERE partner_ratio IS NOT NULL AND edge_count <= coalesce(most_edges, edge_count)
), shares AS (
    SELECT run_id, bytes / sum(bytes) OVER (PARTITION BY run_id) AS share, weight / sum(weight) OVER (PARTITION BY run_id) AS by_law
    FROM weighed
), misplaced AS (
    SELECT run_id, sum(abs(share - by_law)) / 2 AS misplaced_share
    FROM shares
    GROUP BY run_id
), totals AS (
    SELECT run_id, any_value(by_steps) AS by_steps, max(steps) AS steps, sum(bytes) AS bytes
    FROM sent
    GROUP BY run_id
), ratios AS (
    SELECT run_id, law, bytes / (model_bytes * total_factor * steps) AS volume_ratio
    FROM totals
    JOIN runs USING (run_id)
    JOIN laws USING (run_id)
    WHERE by_steps AND model_bytes > 0
    QUALIFY row_number() OVER (PARTITION BY run_id ORDER BY abs(ln(volume_ratio)), law) = 1
), job_hosts AS (
    SELECT run_id, greatest(coalesce(any_value(workers), 0), count(*) FILTER (role = 'worker'))
                   + count(*) FILTER (role = 'parameter_server') AS host_count
    FROM runs
    LEFT JOIN hosts USING (run_id)
    GROUP BY run_id
)
SELECT run_id, law, volume_ratio, misplaced_share, greatest(host_count - hosts, 0)::BIGINT AS idle_hosts
FROM shapes
LEFT JOIN misplaced USING (run_id)
LEFT JOIN ratios USING (run_id)
LEFT JOIN job_hosts USING (run_id)
ORDER BY run_id
