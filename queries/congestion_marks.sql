-- question: Which flows did the network mark as congested, and which hosts did it slow down?
-- subject: delays
-- row: a run and a flow with a packet that was marked, or that tells of marks
-- inputs: flows, host_names
-- answer: sender, receiver, ce_packets, ece_packets, cnp_packets
-- column: run_id
-- column: flow_id from flows
-- column: sender; name of the host whose data was marked: the flow's sender of ce_packets, the receiver of a flow that only tells of marks
-- column: receiver; the other end
-- column: src_ip
-- column: dst_ip
-- column: protocol
-- column: roce_dest_qp
-- column: packets from flows
-- column: ce_packets
-- column: ce_share share; ce_packets over packets
-- column: ece_packets
-- column: cnp_packets
-- A switch marks packets behind their sender. So a capture at the sender has ece_packets (TCP) and cnp_packets (RoCE) of the way back,
-- and one at the receiver has ce_packets, too.
SELECT f.run_id, flow_id,
       CASE WHEN ce_packets > 0 THEN coalesce(src.host, src_ip) ELSE coalesce(dst.host, dst_ip) END AS sender,
       CASE WHEN ce_packets > 0 THEN coalesce(dst.host, dst_ip) ELSE coalesce(src.host, src_ip) END AS receiver,
       src_ip, dst_ip, protocol, roce_dest_qp, packets, ce_packets, ce_packets / packets AS ce_share, ece_packets, cnp_packets
FROM flows AS f
LEFT JOIN host_names AS src ON src.run_id = f.run_id AND src.host_ip = f.src_ip
LEFT JOIN host_names AS dst ON dst.run_id = f.run_id AND dst.host_ip = f.dst_ip
WHERE ce_packets + ece_packets + cnp_packets > 0
ORDER BY f.run_id, flow_id
