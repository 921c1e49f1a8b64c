-- question: Which connections make up each five-tuple?
-- row: a connection (a row of flows)
-- inputs: flows
-- A five-tuple that was used again has several rows in flows. Here flow_id is the number of the first of them, and so of
-- the five-tuple; connection_id is the number of each, flow_id in the tables.
SELECT run_id, flow_id AS connection_id,
       min(flow_id) OVER (PARTITION BY run_id, src_ip, dst_ip, protocol, src_port, dst_port, encapsulation_id,
                                       roce_dest_qp) AS flow_id,
       src_ip, dst_ip, protocol, src_port, dst_port, encapsulation_id, roce_dest_qp, packets, wire_bytes, payload_bytes
FROM flows
ORDER BY run_id, connection_id
