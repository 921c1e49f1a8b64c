-- question: Which directed pairs of hosts carry the exchange of a run?
-- subject: topology
-- row: a run, a level and a directed pair of hosts that carries a part of the exchange
-- inputs: pair_payload
-- column: run_id
-- column: level; how strict the choice of pairs is: 0 to 7, see below
-- column: src_ip
-- column: dst_ip
-- column: payload_bytes bytes; payload of the pair, as in pair_payload
-- column: irregularity ratio; irregularity of the pair, as in pair_payload
-- Hosts with less than a hundredth of the busiest host's payload do not take part. The level sets the least payload of
-- a pair that counts:
--   level   least payload of the pair
--   0, 1    0.5, 0.7 of the heaviest pair's: right where all pairs carry about the same
--   2, 3    0.25, 0.1 of the heaviest pair's: for exchanges whose pairs differ by design (halving, rings of rings)
--   4, 5    0.05, 0.025 of the heaviest pair's, in each direction: for the same exchanges, with traffic both ways
--   6, 7    0.5, 0.75 of an even share among all other hosts, of the sender's payload and of the receiver's
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
