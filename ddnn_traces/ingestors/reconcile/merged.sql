-- Flows from all files. flow_id follows the first packet.
-- One row: a connection of a directed five-tuple, tunnel and queue pair.
CREATE TEMP TABLE merged AS
WITH summed AS (
    SELECT src_ip, dst_ip, protocol, src_port, dst_port, encapsulation_id, roce_dest_qp, connection,
           min(first_seen_ns) AS first_seen_ns,
           max(last_seen_ns) AS last_seen_ns,
           sum(packets)::BIGINT AS packets,
           sum(wire_bytes)::BIGINT AS wire_bytes,
           sum(ip_bytes)::BIGINT AS ip_bytes,
           sum(payload_bytes)::BIGINT AS payload_bytes,
           sum(captured_bytes)::BIGINT AS captured_bytes,
           sum(syn_packets)::BIGINT AS syn_packets,
           sum(fin_packets)::BIGINT AS fin_packets,
           sum(rst_packets)::BIGINT AS rst_packets,
           sum(retransmitted_packets)::BIGINT AS retransmitted_packets,
           sum(retransmitted_bytes)::BIGINT AS retransmitted_bytes,
           sum(out_of_order_packets)::BIGINT AS out_of_order_packets,
           sum(out_of_order_bytes)::BIGINT AS out_of_order_bytes,
           sum(opened)::BIGINT AS opened,
           sum(accepted)::BIGINT AS accepted,
           sum(large_packets)::BIGINT AS large_packets,
           sum(large_payload_bytes)::BIGINT AS large_payload_bytes,
           sum(huge_packets)::BIGINT AS huge_packets,
           sum(huge_payload_bytes)::BIGINT AS huge_payload_bytes,
           CASE WHEN bool_and(missed_bytes IS NOT NULL)
                THEN sum(missed_bytes + greatest(coalesce(ahead, 0), 0)
                         - least(greatest(coalesce(-ahead, 0), 0), coalesce(missed_before, 0))) END::BIGINT AS missed_bytes,
           CASE WHEN bool_and(unacknowledged_missed_bytes IS NOT NULL) THEN sum(unacknowledged_missed_bytes) END::BIGINT AS unacknowledged_missed_bytes,
           arg_min(mss, (file_order, flow)) FILTER (mss IS NOT NULL) AS mss
    FROM connections GROUP BY ALL
)
SELECT * REPLACE (least(missed_bytes, unacknowledged_missed_bytes) AS unacknowledged_missed_bytes),
       row_number() OVER (
           ORDER BY first_seen_ns, src_ip, dst_ip, protocol, src_port, dst_port, encapsulation_id, roce_dest_qp, connection
       ) - 1 AS flow_id
FROM summed;
