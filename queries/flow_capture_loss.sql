-- question: Which connections miss bytes that were sent, and how many in each direction?
-- subject: runs
-- row: a TCP connection: a flow and its reverse flow, where there is one; only those that miss bytes
-- inputs: flows
-- answer: flow_id, percent_lost
-- column: run_id
-- column: flow_id; number of the flow
-- column: src_ip; its sender
-- column: dst_ip; its receiver
-- column: src_port; sender's port
-- column: dst_port; receiver's port
-- column: missed_bytes bytes; bytes that its sender sent, as the numbers prove, and that are not in the captures that count
-- column: unacknowledged_missed_bytes bytes; part of them that the network may have lost
-- column: percent_lost percent; missed_bytes less those not acknowledged, of what they and the captured payload (each byte once) add up to
-- column: reverse_flow_id; number of the reverse flow; null where there is none
-- column: reverse_missed_bytes bytes; missed_bytes of the reverse flow
-- column: reverse_percent_lost percent; percent_lost of the reverse flow
-- Zeek has both directions of a connection in one missed_bytes (conn.log): here they are missed_bytes and
-- reverse_missed_bytes. Of two flows the one with the lower number stands first.
WITH flows_with_loss AS (
    SELECT run_id, flow_id, src_ip, dst_ip, src_port, dst_port, reverse_flow_id, missed_bytes, unacknowledged_missed_bytes,
           missed_bytes - unacknowledged_missed_bytes AS lost,
           (100 * lost / nullif(lost + payload_bytes - retransmitted_bytes, 0))::DOUBLE AS percent_lost
    FROM flows
    WHERE protocol = 6
)
SELECT f.run_id, f.flow_id, f.src_ip, f.dst_ip, f.src_port, f.dst_port, f.missed_bytes, f.unacknowledged_missed_bytes,
       f.percent_lost, f.reverse_flow_id, r.missed_bytes AS reverse_missed_bytes, r.percent_lost AS reverse_percent_lost
FROM flows_with_loss AS f
LEFT JOIN flows_with_loss AS r ON r.run_id = f.run_id AND r.flow_id = f.reverse_flow_id AND r.reverse_flow_id = f.flow_id
WHERE (r.flow_id IS NULL OR f.flow_id < r.flow_id) AND coalesce(f.missed_bytes, 0) + coalesce(r.missed_bytes, 0) > 0
ORDER BY f.run_id, f.flow_id
