-- question: Which pair of hosts of a run carries the most payload of the training?
-- subject: volume
-- row: a run with payload
-- inputs: gradient_payload, host_names
-- column: run_id
-- column: src_ip
-- column: dst_ip
-- column: pair; sender and receiver, by their names in figures
-- column: payload_bytes bytes; payload of the pair, as training_payload_bytes of gradient_payload
-- Of pairs with equal payload the first by address counts.
WITH pairs AS (
    SELECT run_id, src_ip, dst_ip, sum(training_payload_bytes)::BIGINT AS payload_bytes
    FROM gradient_payload
    GROUP BY run_id, src_ip, dst_ip
    HAVING payload_bytes > 0
    QUALIFY row_number() OVER (PARTITION BY run_id ORDER BY sum(training_payload_bytes) DESC, src_ip, dst_ip) = 1
)
SELECT p.run_id, src_ip, dst_ip, coalesce(src.host, src_ip) || ' → ' || coalesce(dst.host, dst_ip) AS pair, payload_bytes
FROM pairs AS p
LEFT JOIN host_names AS src ON src.run_id = p.run_id AND src.host_ip = p.src_ip
LEFT JOIN host_names AS dst ON dst.run_id = p.run_id AND dst.host_ip = p.dst_ip
ORDER BY p.run_id
