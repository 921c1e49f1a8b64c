-- question: Which links of a job did the network mark as congested, beside the job's other links?
-- subject: delays
-- row: a run, a job, and a sender and receiver of its data
-- inputs: flows, job_flows
-- answer: src_ip, dst_ip, marked_share, usual_share
-- column: run_id from job_flows
-- column: job from job_flows
-- column: src_ip
-- column: dst_ip
-- column: packets packets; of the job's flows on the link
-- column: ce_packets packets; of these, marked
-- column: notifications packets; by which the receiver tells the sender of marks: ECE (TCP) and congestion notifications (RoCE); of all flows back
-- column: marked_share ratio; the larger of ce_packets and notifications, over packets; null where the dataset has no marks
-- column: usual_share ratio; median of marked_share over the job's links
-- column: is_marked; whether marked_share is at least 1%, and twice usual_share
-- One notification may stand for many marked packets, or for none that was captured: shares are compared within a job only.
WITH links AS (
    SELECT j.run_id, j.job, src_ip, dst_ip, sum(packets)::BIGINT AS packets, sum(ce_packets)::BIGINT AS ce_packets
    FROM job_flows AS j
    JOIN flows USING (run_id, flow_id)
    GROUP BY ALL
), told AS (
    SELECT run_id, dst_ip AS src_ip, src_ip AS dst_ip, sum(ece_packets + cnp_packets)::BIGINT AS notifications
    FROM flows
    GROUP BY ALL
), shares AS (
    SELECT run_id, job, src_ip, dst_ip, packets, ce_packets, notifications,
           greatest(ce_packets, coalesce(notifications, 0)) / packets AS marked_share
    FROM links
    LEFT JOIN told USING (run_id, src_ip, dst_ip)
)
SELECT *, median(marked_share) OVER (PARTITION BY run_id, job) AS usual_share,
       coalesce(marked_share >= greatest(0.01, 2 * usual_share), false) AS is_marked
FROM shares
ORDER BY run_id, job, src_ip, dst_ip
