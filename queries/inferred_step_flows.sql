-- question: How much does each flow send in each inferred step, as the table step_flows has it of a log's steps?
-- subject: volume
-- row: a run without a log whose inferred steps are sure (step_sources), a flow and a position: a step, before the first or after the last
-- inputs: flow_windows, inferred_step_rows
-- column: run_id from inferred_step_rows
-- column: flow_id from flow_windows
-- column: worker; traffic
-- column: position; before the first step's start, during training, after the last step's end
-- column: step; null before and after
-- column: packets
-- column: wire_bytes
-- column: payload_bytes
-- column: retransmitted_bytes
-- A base window counts as a whole to the step in which it begins; step_flows of a log has packets one by one.
WITH inferred AS MATERIALIZED (
    FROM inferred_step_rows
), spans AS (
    SELECT run_id, min(start_ns) AS first_ns, max(end_ns) AS last_ns
    FROM inferred
    GROUP BY run_id
), placed AS (
    SELECT w.*, CASE WHEN window_start_ns < first_ns THEN 'before' WHEN window_start_ns >= last_ns THEN 'after' ELSE 'during' END AS position,
           CASE WHEN position = 'during' THEN s.step END AS step
    FROM flow_windows AS w
    JOIN spans USING (run_id)
    ASOF LEFT JOIN inferred AS s ON s.run_id = w.run_id AND w.window_start_ns >= s.start_ns
)
SELECT run_id, flow_id, 'traffic' AS worker, position, step, sum(packets)::BIGINT AS packets, sum(wire_bytes)::BIGINT AS wire_bytes,
       CASE WHEN count(payload_bytes) = count(*) THEN sum(payload_bytes) END::BIGINT AS payload_bytes,
       sum(retransmitted_bytes)::BIGINT AS retransmitted_bytes
FROM placed
GROUP BY run_id, flow_id, position, step
ORDER BY run_id, flow_id, position, step
