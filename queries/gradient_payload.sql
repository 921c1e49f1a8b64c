-- question: How much payload does each flow carry that belongs to training?
-- row: a flow
-- inputs: flows, step_flows
-- figure: zerwas table II (gradient-carrying flow)
-- column: run_id; run
-- column: flow_id; number of the flow in its run, as in flows
-- column: src_ip; sender's address
-- column: dst_ip; receiver's address
-- column: by_steps; whether only payload inside steps counts: at least a tenth of the run's payload is inside steps
-- column: training_payload_bytes bytes; payload of the flow inside steps; all of it where by_steps is false
-- Less than a tenth of a run's payload is inside steps where there is no log, or one on another clock.
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
