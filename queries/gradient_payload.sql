-- question: How much payload does each flow carry that belongs to training?
-- row: a flow
-- inputs: flows, step_flows
-- figure: zerwas table II (gradient-carrying flow)
-- The payload inside steps; all of it in a run with less than a tenth of its payload inside steps (no log, or a log on
-- another clock), as in ring_order. by_steps says which.
WITH in_steps AS (
    SELECT run_id, flow_id, sum(payload_bytes) AS step_payload
    FROM step_flows
    WHERE position = 'during'
    GROUP BY ALL
), compared AS (
    SELECT f.run_id, f.flow_id, src_ip, dst_ip, payload_bytes, coalesce(step_payload, 0) AS step_payload,
           coalesce(sum(step_payload) OVER (PARTITION BY f.run_id)
                    >= 0.1 * sum(payload_bytes) OVER (PARTITION BY f.run_id), false) AS by_steps
    FROM flows AS f
    LEFT JOIN in_steps USING (run_id, flow_id)
)
SELECT run_id, flow_id, src_ip, dst_ip, by_steps,
       CASE WHEN by_steps THEN step_payload ELSE payload_bytes END::BIGINT AS training_payload_bytes
FROM compared
ORDER BY run_id, flow_id
