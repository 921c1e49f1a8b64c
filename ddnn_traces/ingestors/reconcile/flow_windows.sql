-- The rows of the table flow_windows, where time stamps are so far out of order that run_tables.py cannot merge them.
-- One row: a flow and a window. Parameter: window_ns.
SELECT flow_id, "window" * $window_ns AS window_start_ns, $window_ns AS window_ns,
       sum(packets)::BIGINT AS packets, sum(wire_bytes)::BIGINT AS wire_bytes, sum(payload_bytes)::BIGINT AS payload_bytes,
       sum(retransmitted_bytes)::BIGINT AS retransmitted_bytes
FROM cells JOIN flow_map USING (file, flow) GROUP BY ALL;
