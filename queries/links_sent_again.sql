-- question: On which links of a training job was much sent again, or came late?
-- subject: collectives
-- row: a run, a job and a directed pair of hosts, of whose bytes at least 0.5% was sent again, or came late
-- inputs: hosts, flows, job_flows
-- answer: src_ip, dst_ip, again_bytes, share
-- column: run_id from job_flows
-- column: job from job_flows
-- column: src_ip from flows
-- column: dst_ip from flows
-- column: again_bytes bytes; retransmitted payload of the job's flows from one host to the other
-- column: share share; again_bytes over the payload of these flows
-- column: late_bytes bytes; out_of_order_bytes of these flows: payload captured behind bytes that follow it, and not before
-- column: late_share share; late_bytes over the same payload
-- column: sentence; the finding in words
-- Bytes come late where packets are lost before they are captured, as in the sender's own queue (qdisc), and sent again: their first copy is in no capture,
-- so none is a repeat. Packets that overtake each other on several paths (ECMP, bonding) look the same: captured at the sender they do so on the host itself.
-- The first row of a job is the one with the largest of the two shares. 1% of lost packets is less of the bytes, where some packets are small. Where more than two
-- thirds are there again, they are copies of packets, as in verdicts (check captured_copies), and there is no row.
WITH thresholds AS (
    SELECT 0.005 AS least_share, 2 / 3 AS most_share, '{} MB from {} to {} ({}% of that link''s bytes)' AS said
), links AS (
    SELECT run_id, job, src_ip, dst_ip, sum(retransmitted_bytes)::BIGINT AS again_bytes, again_bytes / nullif(sum(payload_bytes), 0) AS share,
           coalesce(sum(out_of_order_bytes), 0)::BIGINT AS late_bytes, late_bytes / nullif(sum(payload_bytes), 0) AS late_share,
           greatest(share, late_share) AS largest
    FROM job_flows
    JOIN flows USING (run_id, flow_id)
    GROUP BY run_id, job, src_ip, dst_ip
)
SELECT l.* EXCLUDE (largest),
       concat_ws(' ',
                 CASE WHEN share >= least_share THEN format('{} were sent again.', format(said, format(CASE WHEN again_bytes < 1e8 THEN '{:.3g}' ELSE '{:.0f}' END, again_bytes / 1e6),
                      coalesce(a.label, src_ip), coalesce(b.label, dst_ip), format(CASE WHEN share < 0.1 THEN '{:.2g}' ELSE '{:.0f}' END, 100 * share))) END,
                 CASE WHEN late_share >= least_share THEN format('{} came late, behind bytes that follow them, as where packets are lost before they are captured, or overtake each other.',
                      format(said, format(CASE WHEN late_bytes < 1e8 THEN '{:.3g}' ELSE '{:.0f}' END, late_bytes / 1e6),
                      coalesce(a.label, src_ip), coalesce(b.label, dst_ip), format(CASE WHEN late_share < 0.1 THEN '{:.2g}' ELSE '{:.0f}' END, 100 * late_share))) END) AS sentence
FROM links AS l
LEFT JOIN hosts AS a ON a.run_id = l.run_id AND a.host_ip = src_ip
LEFT JOIN hosts AS b ON b.run_id = l.run_id AND b.host_ip = dst_ip
CROSS JOIN thresholds
WHERE share <= most_share AND largest >= least_share
ORDER BY l.run_id, job, largest DESC, src_ip, dst_ip
