-- question: Which hosts exchange data in a run, but have no capture of their own?
-- subject: runs
-- row: a run and a host without a capture, in runs whose captures were taken at hosts
-- inputs: flows, captures
-- column: run_id from flows
-- column: host_ip; address of the host
-- column: hosts hosts; hosts of the run that exchange data
-- column: payload_bytes bytes; what it sends to hosts with a capture, and gets from them, as they saw it
-- What such a host sends is there only where its receivers captured both directions, and what two of them exchange is not there at all. A
-- host exchanges data if one of its flows has at least 1% of the payload of the run's heaviest one. Where a capture was taken between
-- hosts, as at a mirror port, nothing can be said, and there is no row.
WITH thresholds AS (
    SELECT 0.01 AS data_share  -- of the heaviest flow's payload: a flow from here on carries data
), vantages AS (
    SELECT run_id, list(DISTINCT vantage_ip) AS host_ips
    FROM captures
    GROUP BY run_id
    HAVING bool_and(vantage_ip IS NOT NULL)
), data AS (
    SELECT run_id, src_ip, dst_ip, payload_bytes
    FROM flows
    CROSS JOIN thresholds
    QUALIFY payload_bytes > 0 AND payload_bytes >= data_share * max(payload_bytes) OVER (PARTITION BY run_id)
), ends AS (
    SELECT run_id, unnest([src_ip, dst_ip]) AS host_ip, payload_bytes
    FROM data
), exchanging AS (
    SELECT run_id, host_ip, count(*) OVER (PARTITION BY run_id) AS hosts, sum(payload_bytes)::BIGINT AS payload_bytes
    FROM ends
    GROUP BY run_id, host_ip
)
SELECT run_id, host_ip, hosts, payload_bytes
FROM exchanging
JOIN vantages USING (run_id)
WHERE NOT list_contains(host_ips, host_ip)
ORDER BY run_id, host_ip
