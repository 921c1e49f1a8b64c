-- question: How much payload does each flow carry that belongs to training?
-- subject: volume
-- row: a flow
-- inputs: flows, flow_step_payload
-- optional: flow_step_payload
-- figure: zerwas table II (gradient-carrying flow)
-- column: run_id
-- column: flow_id from flows
-- column: src_ip
-- column: dst_ip
-- column: by_steps; whether only payload inside steps counts: at least a tenth of the run's payload is inside steps
-- column: training_payload_bytes bytes; payload of the flow inside steps; all of it where by_steps is false
-- Less than a tenth of a run's payload is inside steps where there is no log, or one on another clock.
WITH thresholds AS (
    SELECT 0.1 AS least_share_in_steps  -- of a run's payload: with less there is no log, or one on another clock
), compared AS (
    SELECT f.run_id, f.flow_id, src_ip, dst_ip, payload_bytes, coalesce(step_payload_bytes, 0) AS step_payload,
           coalesce(sum(step_payload_bytes) OVER (PARTITION BY f.run_id)
                    >= least_share_in_steps * sum(payload_bytes) OVER (PARTITION BY f.run_id), false) AS by_steps,
           bool_and(payload_bytes IS NOT NULL) OVER (PARTITION BY f.run_id) AS is_known  -- as in unknown_payload
    FROM flows AS f
    LEFT JOIN flow_step_payload USING (run_id, flow_id)
    CROSS JOIN thresholds
)
SELECT run_id, flow_id, src_ip, dst_ip, by_steps,
       CASE WHEN NOT is_known THEN NULL WHEN by_steps THEN step_payload ELSE payload_bytes END::BIGINT AS training_payload_bytes
FROM compared
ORDER BY run_id, flow_id
