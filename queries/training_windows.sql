-- question: When does each flow with training traffic send how much of it?
-- row: a run, a flow of training_flows and a base window with training traffic of it
-- inputs: flow_windows, training_flows
-- column: run_id; run
-- column: run_number; number of the run in training_flows
-- column: flow_id; number of the flow in its run, as in flows
-- column: weight; weight of the flow's pair (training_flows)
-- column: window_start_ns ns since the epoch, UTC; begin of the window
-- column: window_ns ns; length of the window
-- column: payload_bytes bytes; payload of the flow in the window
-- A window in which the flow's packets carry less than 256 bytes of payload on average holds control messages only:
-- Horovod's workers tell each other every few milliseconds, on the connections of the gradients, what they are ready for.
WITH thresholds AS (
    SELECT 256 AS least_mean_bytes  -- payload per packet, acknowledgements included; windows without a count are training
), large_flows AS MATERIALIZED (
    FROM training_flows
)
SELECT run_id, run_number, flow_id, weight, window_start_ns, window_ns, payload_bytes
FROM flow_windows
JOIN large_flows USING (run_id, flow_id)
WHERE payload_bytes > 0 AND (packets IS NULL OR payload_bytes >= packets * (SELECT least_mean_bytes FROM thresholds))
ORDER BY run_id, flow_id, window_start_ns
