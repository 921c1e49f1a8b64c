-- The rows of the table step_flows.
-- One row: a flow, a worker and a position: one of the worker's steps, before the first or after the last.
-- Parameter: no_step: the step of cells in files without a log; below it are notes (flow_counters.py).
SELECT flow_id, worker,
       CASE WHEN step < 0 THEN 'before' WHEN step < steps THEN 'during' ELSE 'after' END AS position,
       CASE WHEN position = 'during' THEN step END AS step,
       sum(packets)::BIGINT AS packets, sum(wire_bytes)::BIGINT AS wire_bytes, sum(payload_bytes)::BIGINT AS payload_bytes,
       sum(retransmitted_bytes)::BIGINT AS retransmitted_bytes
FROM cells JOIN flow_map USING (file, flow) JOIN files USING (file)
WHERE step > $no_step GROUP BY ALL;
