-- question: How much does each five-tuple of a run send?
-- subject: volume
-- row: a run and a directed five-tuple, in its tunnel and of its RoCE queue pair
-- inputs: flows
-- column: run_id
-- column: flow_id; number of the five-tuple: the flow_id of its first connection
-- column: src_ip
-- column: dst_ip
-- column: protocol
-- column: src_port
-- column: dst_port
-- column: encapsulation_id
-- column: roce_dest_qp
-- column: packets packets; packets of the five-tuple
-- column: wire_bytes bytes; sum of the packets' original lengths
-- column: payload_bytes bytes; payload of these packets
-- Connections that use the same ports one after the other are one five-tuple.
SELECT run_id, min(flow_id) AS flow_id, src_ip, dst_ip, protocol, src_port, dst_port, encapsulation_id, roce_dest_qp,
       sum(packets)::BIGINT AS packets, sum(wire_bytes)::BIGINT AS wire_bytes, CASE WHEN count(payload_bytes) = count(*) THEN sum(payload_bytes) END::BIGINT AS payload_bytes
FROM flows
GROUP BY ALL
ORDER BY run_id, flow_id
