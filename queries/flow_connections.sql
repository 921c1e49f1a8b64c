-- question: Which connections make up each five-tuple?
-- row: a connection (a row of flows)
-- inputs: flows
-- column: run_id; run
-- column: connection_id; number of the connection: flow_id in flows
-- column: flow_id; number of the five-tuple: the flow_id of its first connection
-- column: src_ip; sender's address
-- column: dst_ip; receiver's address
-- column: protocol; IP protocol number: 6 TCP, 17 UDP
-- column: src_port; sender's port; 0 for protocols without ports
-- column: dst_port; receiver's port; 0 for protocols without ports
-- column: encapsulation_id; tunnel of the flow, as in encapsulations; null outside tunnels
-- column: roce_dest_qp; RoCEv2: destination queue pair; null otherwise
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
