-- question: How much payload does each pair of hosts exchange inside the training steps?
-- subject: volume
-- row: a run and a directed pair of hosts with payload
-- inputs: step_pairs, gradient_payload
-- optional: step_pairs
-- column: run_id
-- column: src_ip
-- column: dst_ip
-- column: by_steps; whether only payload inside steps counts, as in gradient_payload
-- column: payload_bytes bytes; payload of the pair inside steps; all of it where by_steps is false
-- column: irregularity ratio; standard deviation of what the pair sends in a step, over its mean; null where by_steps is false
-- column: steps steps; steps of the run with payload; null where by_steps is false
-- Payload inside steps leaves out start-up broadcast, rendezvous, logins and acknowledgements. irregularity is about 0
-- where each step is like the other, 1 and more where a pair sends in some steps only.
WITH in_steps AS (
    SELECT run_id, src_ip, dst_ip, step, payload_bytes::DOUBLE AS bytes
    FROM step_pairs
    WHERE payload_bytes > 0 AND src_ip <> dst_ip
), step_numbers AS (
    SELECT run_id, count(DISTINCT step) AS step_count
    FROM in_steps
    GROUP BY run_id
), pair_moments AS (
    SELECT run_id, src_ip, dst_ip, sum(bytes) AS step_bytes, sum(bytes ** 2) AS squares
    FROM in_steps
    GROUP BY ALL
), payload AS (
    SELECT run_id, src_ip, dst_ip, any_value(by_steps) AS by_steps, sum(training_payload_bytes)::BIGINT AS payload_bytes
    FROM gradient_payload
    WHERE src_ip <> dst_ip  -- a host that talks to itself is no pair
    GROUP BY run_id, src_ip, dst_ip
    HAVING sum(training_payload_bytes) > 0
)
SELECT run_id, src_ip, dst_ip, by_steps, payload_bytes,
       CASE WHEN by_steps
            THEN sqrt(greatest(squares / step_count - (step_bytes / step_count) ** 2, 0)) / (step_bytes / step_count)
       END AS irregularity,
       CASE WHEN by_steps THEN step_count END AS steps
FROM payload
LEFT JOIN pair_moments USING (run_id, src_ip, dst_ip)
LEFT JOIN step_numbers USING (run_id)
ORDER BY run_id, src_ip, dst_ip
