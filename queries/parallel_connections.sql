-- question: Do all pairs of hosts that exchange have as many connections, or do some carry a second exchange?
-- subject: topology
-- row: a run with payload
-- inputs: gradient_payload
-- column: run_id
-- column: pairs pairs; directed pairs of hosts with payload
-- column: shared_pairs pairs; of them those whose further connections carry a twentieth of the heaviest pair's payload or more
-- column: further_share share; part of the payload that is not on the heaviest connection of its pair
-- column: uneven_share share; part of the payload that would have to be on other pairs, so that each pair has the same part of its payload on further connections
-- column: several_exchanges; whether a second program exchanges on some of the pairs: on two pairs or more, and by uneven_share
-- A program that opens several connections opens as many between all hosts that exchange, and one that starts anew
-- replaces all of them. So uneven_share is about 0, unless a second program sends on some of the pairs. Payload inside
-- steps counts, as in gradient_payload. Two programs that send on all the same pairs, or on no common pair, are not seen.
WITH thresholds AS (
    SELECT 0.05 AS least_share,   -- of the heaviest pair's payload: as much takes part in an exchange
           2 AS exchange_pairs,   -- one pair is no exchange: a copy of a file has one, and the way back carries nothing
           0.03 AS least_uneven   -- of single trainings, restarted ones too, 0.007 was seen at most
), pairs AS (
    SELECT run_id, src_ip, dst_ip, sum(training_payload_bytes)::DOUBLE AS bytes,
           (sum(training_payload_bytes) - max(training_payload_bytes))::DOUBLE AS further
    FROM gradient_payload
    GROUP BY ALL
    HAVING bytes > 0
), totals AS (
    SELECT run_id, count(*) AS pairs, sum(bytes) AS total, sum(further) / sum(bytes) AS further_share, max(bytes) AS heaviest
    FROM pairs
    GROUP BY run_id
)
SELECT run_id, pairs, count(*) FILTER (further >= least_share * heaviest) AS shared_pairs, further_share,
       sum(abs(further - further_share * bytes)) / (2 * total) AS uneven_share,
       pairs > 2 AND shared_pairs >= any_value(exchange_pairs) AND uneven_share > any_value(least_uneven) AS several_exchanges
FROM pairs
JOIN totals USING (run_id)
CROSS JOIN thresholds
GROUP BY run_id, pairs, further_share, total
ORDER BY run_id
