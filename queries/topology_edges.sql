-- question: Which directed pairs of hosts carry the exchange of a run?
-- row: a run, a level and a directed pair of hosts that carries a part of the exchange
-- inputs: pair_payload
-- column: run_id; run
-- column: level; how strict the choice of pairs is: 0 to 7, see below
-- column: src_ip; sender's address
-- column: dst_ip; receiver's address
-- column: payload_bytes bytes; payload of the pair, as in pair_payload
-- column: irregularity ratio; irregularity of the pair, as in pair_payload
-- Hosts with less than a hundredth of the busiest host's payload do not take part. A level sets from where on a pair
-- counts, at 0 and 1 half and 0.7 of the heaviest pair's payload, right where all pairs carry about the same; 2 to 5,
-- less and less of it, for exchanges whose pairs differ by design (recursive halving, rings of rings), 4 and 5 only
-- with as much the other way; 6 and 7, half and three quarters of an even share among all other hosts, both of what the
-- sender sends and of what the receiver receives.
WITH thresholds AS (
    SELECT 0.01 AS member_share  -- of the busiest host's payload: a host from here on takes part
), pairs AS MATERIALIZED (
    FROM pair_payload
), ends AS (
    SELECT run_id, src_ip AS host_ip, payload_bytes FROM pairs
    UNION ALL
    SELECT run_id, dst_ip, payload_bytes FROM pairs
), members AS (
    SELECT run_id, host_ip, count(*) OVER (PARTITION BY run_id) AS member_count
    FROM (
        SELECT run_id, host_ip, sum(payload_bytes) AS host_bytes
        FROM ends
        CROSS JOIN thresholds
        GROUP BY run_id, host_ip, member_share
        QUALIFY host_bytes >= member_share * max(host_bytes) OVER (PARTITION BY run_id)
    )
), weighed AS (
    SELECT p.*, s.member_count,
           max(p.payload_bytes) OVER (PARTITION BY p.run_id) AS heaviest,
           least(p.payload_bytes, coalesce(back.payload_bytes, 0)) AS smaller_way,
           least(p.payload_bytes / sum(p.payload_bytes) OVER (PARTITION BY p.run_id, p.src_ip),
                 p.payload_bytes / sum(p.payload_bytes) OVER (PARTITION BY p.run_id, p.dst_ip)) AS least_share
    FROM pairs AS p
    JOIN members AS s ON s.run_id = p.run_id AND s.host_ip = p.src_ip
    JOIN members AS d ON d.run_id = p.run_id AND d.host_ip = p.dst_ip
    LEFT JOIN pairs AS back ON back.run_id = p.run_id AND back.src_ip = p.dst_ip AND back.dst_ip = p.src_ip
), levels AS (
    SELECT unnest([0, 1, 2, 3, 4, 5, 6, 7]) AS level,
           unnest([0.5, 0.7, 0.25, 0.1, 0, 0, 0, 0]) AS of_heaviest,
           unnest([0, 0, 0, 0, 0.05, 0.025, 0, 0]) AS of_heaviest_both_ways,
           unnest([0, 0, 0, 0, 0, 0, 0.5, 0.75]) AS of_even_share
)
SELECT run_id, level::BIGINT AS level, src_ip, dst_ip, payload_bytes, irregularity
FROM weighed
CROSS JOIN levels
WHERE payload_bytes >= of_heaviest * heaviest
  AND smaller_way >= of_heaviest_both_ways * heaviest
  AND least_share >= of_even_share / greatest(member_count - 1, 1)
ORDER BY run_id, level, src_ip, dst_ip
