-- question: Who sends how much to whom?
-- row: a run and a directed pair of hosts
-- inputs: flows
-- figure: zerwas fig. 4
SELECT run_id, src_ip, dst_ip,
       sum(wire_bytes)::BIGINT AS wire_bytes,
       sum(payload_bytes)::BIGINT AS payload_bytes,
       sum(packets)::BIGINT AS packets
FROM flows
GROUP BY ALL
ORDER BY run_id, src_ip, dst_ip
