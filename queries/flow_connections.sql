-- question: Which connections make up each five-tuple?
-- subject: volume
-- row: a connection (a row of flows)
-- inputs: flows
-- column: run_id
-- column: connection_id; number of the connection: flow_id in flows
-- column: flow_id; number of the five-tuple: the flow_id of its first connection
-- column: src_ip
-- column: dst_ip
-- column: protocol
-- column: src_port
-- column: dst_port
-- column: encapsulation_id
-- column: roce_dest_qp
-- column: packets packets; packets of the connection
-- column: wire_bytes bytes; sum of the packets' original lengths
-- column: payload_bytes bytes; payload of these packets
-- A five-tuple that was used again has several rows in flows.
SELECT run_id, flow_id AS connection_id,
       min(flow_id) OVER (PARTITION BY run_id, src_ip, dst_ip, protocol, src_port, dst_port, encapsulation_id,
                                       roce_dest_qp) AS flow_id,
       src_ip, dst_ip, protocol, src_port, dst_port, encapsulation_id, roce_dest_qp, packets, wire_bytes, payload_bytes
FROM flows
ORDER BY run_id, connection_id
