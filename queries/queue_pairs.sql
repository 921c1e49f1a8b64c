-- question: How evenly do the RoCE queue pairs of two hosts share their data, and is one of them slower?
-- subject: delays
-- row: a run and a queue pair of a sender and receiver that data is sent to
-- inputs: flows, flow_windows, flow_opcodes
-- answer: src_ip, dst_ip, roce_dest_qp, share_of_pair, rate_ratio
-- column: run_id from flows
-- column: src_ip
-- column: dst_ip
-- column: roce_dest_qp
-- column: src_port from flows
-- column: flow_id from flows
-- column: payload_bytes bytes; of packets with data (SEND, RDMA WRITE, answers to READ), transport headers included
-- column: queue_pairs queue pairs; of this sender and receiver
-- column: share_of_pair share; payload_bytes over that of all these
-- column: balance ratio; payload_bytes over the mean of these: 1 where they share evenly
-- column: gbit_per_s Gbit/s; payload of the flow over the base windows in which it sends
-- column: rate_ratio ratio; gbit_per_s over that of the fastest of these
-- column: ce_packets from flows
-- column: psn_repeated_packets from flows
-- column: psn_late_packets
-- column: psn_missing_packets
-- Queue pairs have UDP source ports of their own, by which switches choose a path (ECMP). As many bytes at unequal rates are what two of them
-- on one link look like from a host: it does not prove a collision, since a receiver may be slow, too. NAKs and notifications name the queue
-- pair of the other direction (roce_events).
WITH data AS (
    SELECT run_id, flow_id, sum(payload_bytes)::BIGINT AS payload_bytes
    FROM flow_opcodes
    WHERE roce_opcode // 32 IN (0, 1, 3, 5) AND (roce_opcode % 32 <= 11 OR roce_opcode % 32 IN (13, 14, 15, 16, 22, 23))
    GROUP BY run_id, flow_id
), rates AS (
    SELECT run_id, flow_id, sum(payload_bytes) * 8 / sum(window_ns) AS gbit_per_s
    FROM flow_windows
    SEMI JOIN data USING (run_id, flow_id)
    GROUP BY run_id, flow_id
)
SELECT d.run_id, src_ip, dst_ip, roce_dest_qp, src_port, d.flow_id, d.payload_bytes, count(*) OVER of_pair AS queue_pairs,
       d.payload_bytes / sum(d.payload_bytes) OVER of_pair AS share_of_pair,
       d.payload_bytes / avg(d.payload_bytes) OVER of_pair AS balance,
       gbit_per_s, gbit_per_s / max(gbit_per_s) OVER of_pair AS rate_ratio, ce_packets, psn_repeated_packets, psn_late_packets,
       psn_missing_packets
FROM data AS d
JOIN flows AS f USING (run_id, flow_id)
LEFT JOIN rates USING (run_id, flow_id)
WINDOW of_pair AS (PARTITION BY d.run_id, src_ip, dst_ip)
ORDER BY d.run_id, src_ip, dst_ip, roce_dest_qp, d.flow_id
