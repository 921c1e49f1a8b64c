-- question: How much does each host send to each other host?
-- subject: volume
-- row: a run and a directed pair of hosts
-- inputs: flows
-- figure: zerwas fig. 4
-- column: run_id
-- column: src_ip
-- column: dst_ip
-- column: wire_bytes bytes; original lengths of the packets from sender to receiver
-- column: payload_bytes bytes; payload of these packets
-- column: packets packets; packets from sender to receiver
SELECT run_id, src_ip, dst_ip,
       sum(wire_bytes)::BIGINT AS wire_bytes,
       CASE WHEN count(payload_bytes) = count(*) THEN sum(payload_bytes) END::BIGINT AS payload_bytes,
       sum(packets)::BIGINT AS packets
FROM flows
GROUP BY ALL
ORDER BY run_id, src_ip, dst_ip
