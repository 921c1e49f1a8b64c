-- question: Do the workers form a ring, and in which order does data flow around it?
-- subject: topology
-- row: a position in a run's ring, from 0, in the direction in which data flows; one row with is_ring false and null positions for any other run
-- inputs: runs, hosts, pair_payload, unknown_payload
-- figure: zerwas fig. 4(a)
-- answer: position, host_ip, next_host_ip
-- column: run_id from hosts
-- column: is_ring; whether the run's payload forms a ring
-- column: position; number of the host in the ring, from 0; null where is_ring is false
-- column: host_ip
-- column: next_host_ip; address of the host to which it sends
-- Payload inside steps counts, as in pair_payload. In a ring each host has one heavy pair to send on and one to receive
-- on, one walk along them visits every one of these hosts, and together they carry most of the payload. Two hosts
-- form no ring: every topology is the one link between them. The limits are in `thresholds`.
WITH RECURSIVE thresholds AS (
    SELECT 0.5 AS heavy_share,            -- of the heaviest pair's payload: a pair from here on is part of the ring
           0.9 AS ring_share_in_steps,    -- of all payload inside steps: what the heavy pairs must carry together
           0.75 AS ring_share_of_all,     -- the same without steps: the start-up broadcast is in the payload
           3 AS least_hosts               -- two hosts send the same in every topology
), weighed AS (
    SELECT run_id, src_ip, dst_ip, by_steps, payload_bytes AS payload,
           max(payload_bytes) OVER (PARTITION BY run_id) AS heaviest,
           sum(payload_bytes) OVER (PARTITION BY run_id) AS total
    FROM pair_payload
), heavy AS (
    SELECT *
    FROM weighed
    CROSS JOIN thresholds
    WHERE payload >= heavy_share * heaviest
), candidate AS (
    SELECT run_id, count(*) AS hosts
    FROM heavy
    GROUP BY run_id, least_hosts
    HAVING count(*) >= least_hosts
       AND count(DISTINCT src_ip) = count(*)
       AND count(DISTINCT dst_ip) = count(*)
       AND list_sort(list(src_ip)) = list_sort(list(dst_ip))
       AND sum(payload) >= any_value(CASE WHEN by_steps THEN ring_share_in_steps ELSE ring_share_of_all END * total)
), first_host AS (
    SELECT heavy.run_id, candidate.hosts, src_ip
    FROM heavy
    JOIN candidate USING (run_id)
    LEFT JOIN hosts AS named ON named.run_id = heavy.run_id AND named.host_ip = heavy.src_ip
    QUALIFY row_number() OVER (PARTITION BY heavy.run_id ORDER BY rank NULLS LAST, src_ip) = 1
), walk AS (
    SELECT run_id, f.hosts, 0 AS position, f.src_ip AS first_ip, f.src_ip AS host_ip, h.dst_ip AS next_host_ip
    FROM first_host AS f
    JOIN heavy AS h USING (run_id, src_ip)
    UNION ALL
    SELECT w.run_id, w.hosts, w.position + 1, w.first_ip, h.src_ip, h.dst_ip
    FROM walk AS w
    JOIN heavy AS h ON h.run_id = w.run_id AND h.src_ip = w.next_host_ip
    WHERE w.next_host_ip <> w.first_ip
), ring AS (
    SELECT run_id, position, host_ip, next_host_ip
    FROM walk
    QUALIFY count(*) OVER (PARTITION BY run_id) = hosts
)
SELECT run_id, CASE WHEN run_id NOT IN (SELECT run_id FROM unknown_payload) THEN position IS NOT NULL END AS is_ring, position::BIGINT AS position, host_ip, next_host_ip
FROM runs
LEFT JOIN ring USING (run_id)
ORDER BY run_id, position
