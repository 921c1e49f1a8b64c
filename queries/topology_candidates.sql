-- question: How much of a run's payload would a ring, a star, a tree or a clique carry?
-- subject: topology
-- row: a run with payload and a candidate: ring, star, tree or clique
-- inputs: pair_payload
-- column: run_id
-- column: candidate; ring, star, tree or clique
-- column: place; number of the candidate in its run, by payload_bytes, from 1
-- column: payload_bytes bytes; payload that the best pairs of the candidate carry
-- column: payload_share share; part of the run's payload
-- Payload inside steps counts, as in pair_payload. The best pairs of a ring are the heaviest pair of each sender; of a
-- star all pairs of one host; of a tree of N hosts the N-1 heaviest links, in both directions; of a clique all pairs,
-- each up to an even share of the payload. Hosts that do not take part (topology_edges) are no hosts of a candidate, as those
-- that only announce names (mDNS). No shape is tested: topology does that, and names the best other candidate.
WITH thresholds AS (
    SELECT 0.01 AS member_share  -- as in topology_edges
), all_pairs AS MATERIALIZED (
    FROM pair_payload
), totals AS (
    SELECT run_id, sum(payload_bytes) AS total_bytes
    FROM all_pairs
    GROUP BY run_id
), ends AS (
    SELECT run_id, src_ip AS host_ip, payload_bytes FROM all_pairs
    UNION ALL
    SELECT run_id, dst_ip, payload_bytes FROM all_pairs
), host_sums AS (
    SELECT run_id, host_ip, sum(payload_bytes) AS bytes
    FROM ends
    CROSS JOIN thresholds
    GROUP BY run_id, host_ip, member_share
    QUALIFY bytes >= member_share * max(bytes) OVER (PARTITION BY run_id)
), pairs AS MATERIALIZED (
    FROM all_pairs AS p
    SEMI JOIN host_sums AS a ON a.run_id = p.run_id AND a.host_ip = src_ip
    SEMI JOIN host_sums AS b ON b.run_id = p.run_id AND b.host_ip = dst_ip
), host_counts AS (
    SELECT run_id, count(*) AS host_count
    FROM host_sums
    GROUP BY run_id
), best_ring AS (
    SELECT run_id, sum(payload_bytes) AS bytes
    FROM (SELECT run_id, max(payload_bytes) AS payload_bytes FROM pairs GROUP BY run_id, src_ip)
    GROUP BY run_id
), best_star AS (
    SELECT run_id, max(bytes) AS bytes
    FROM (SELECT run_id, host_ip, sum(payload_bytes) AS bytes
          FROM (SELECT run_id, unnest([src_ip, dst_ip]) AS host_ip, payload_bytes FROM pairs)
          GROUP BY run_id, host_ip)
    GROUP BY run_id
), ranked_links AS (
    SELECT run_id, sum(payload_bytes) AS bytes,
           row_number() OVER (PARTITION BY run_id ORDER BY sum(payload_bytes) DESC) AS link_place
    FROM pairs
    GROUP BY run_id, least(src_ip, dst_ip), greatest(src_ip, dst_ip)
), best_tree AS (
    SELECT run_id, sum(bytes) AS bytes
    FROM ranked_links
    JOIN host_counts USING (run_id)
    WHERE link_place < host_count
    GROUP BY run_id
), best_clique AS (
    SELECT run_id, sum(least(payload_bytes, even_bytes)) AS bytes
    FROM (
        SELECT run_id, payload_bytes, total_bytes / (host_count * (host_count - 1)) AS even_bytes
        FROM pairs
        JOIN totals USING (run_id)
        JOIN host_counts USING (run_id)
    )
    GROUP BY run_id
), candidates AS (
    SELECT run_id, 'ring' AS candidate, bytes::BIGINT AS bytes FROM best_ring
    UNION ALL
    SELECT run_id, 'star', bytes::BIGINT FROM best_star
    UNION ALL
    SELECT run_id, 'tree', bytes::BIGINT FROM best_tree
    UNION ALL
    SELECT run_id, 'clique', round(bytes)::BIGINT FROM best_clique
)
SELECT run_id, candidate, row_number() OVER (PARTITION BY run_id ORDER BY bytes DESC, candidate) AS place,
       bytes AS payload_bytes, bytes / total_bytes AS payload_share
FROM candidates
JOIN totals USING (run_id)
ORDER BY run_id, place
