-- question: When was RoCE data lost, refused or slowed down, on which queue pair, and during which collective?
-- subject: delays
-- row: a run, a RoCE flow and a base window with a NAK, an RNR NAK, a congestion notification or a repeated packet
-- inputs: flow_windows, flows, collective_transfers
-- answer: window_start_ns, src_ip, dst_ip, nak_packets, rnr_packets, cnp_packets, psn_repeated_packets
-- column: run_id from flow_windows
-- column: window_start_ns
-- column: flow_id from flow_windows
-- column: src_ip from flows
-- column: dst_ip from flows
-- column: roce_dest_qp
-- column: nak_packets from flow_windows
-- column: rnr_packets from flow_windows
-- column: cnp_packets from flow_windows
-- column: psn_repeated_packets from flow_windows
-- column: psn_repeated_bytes from flow_windows
-- column: job; of the collective that was under way between the two hosts, in either direction; null where none was, or none is known
-- column: step from collective_transfers
-- column: position from collective_transfers
-- NAKs, RNR NAKs and notifications come from the receiver of the data: their src_ip is that receiver, and roce_dest_qp the queue pair
-- of the sender. Of several collectives the one that began last. The code of a NAK is in packets.roce_syndrome, with --packets.
WITH found AS (
    SELECT w.run_id, w.window_start_ns, w.window_ns, w.flow_id, src_ip, dst_ip, roce_dest_qp, w.nak_packets, w.rnr_packets, w.cnp_packets,
           w.psn_repeated_packets, w.psn_repeated_bytes
    FROM flow_windows AS w
    JOIN flows USING (run_id, flow_id)
    WHERE w.nak_packets + w.rnr_packets + w.cnp_packets + w.psn_repeated_packets > 0
), under_way AS (
    SELECT run_id, job, step, "position", least(src_ip, dst_ip) AS one_ip, greatest(src_ip, dst_ip) AS other_ip, min(first_ns) AS first_ns,
           max(last_ns) AS last_ns
    FROM collective_transfers
    GROUP BY ALL
)
SELECT f.run_id, window_start_ns, flow_id, src_ip, dst_ip, roce_dest_qp, nak_packets, rnr_packets, cnp_packets, psn_repeated_packets,
       psn_repeated_bytes, job, step, "position"
FROM found AS f
LEFT JOIN under_way AS c
  ON f.run_id = c.run_id AND one_ip = least(src_ip, dst_ip) AND other_ip = greatest(src_ip, dst_ip)
 AND first_ns < window_start_ns + window_ns AND last_ns >= window_start_ns
QUALIFY row_number() OVER (PARTITION BY f.run_id, flow_id, window_start_ns ORDER BY first_ns DESC, job, "position") = 1
ORDER BY f.run_id, window_start_ns, flow_id
