-- question: On which links of a training job was much sent again?
-- subject: collectives
-- row: a run, a job and a directed pair of hosts, of whose bytes at least 0.5% was sent again
-- inputs: hosts, flows, job_flows
-- answer: src_ip, dst_ip, again_bytes, share
-- column: run_id from job_flows
-- column: job from job_flows
-- column: src_ip from flows
-- column: dst_ip from flows
-- column: again_bytes bytes; retransmitted payload of the job's flows from one host to the other
-- column: share share; again_bytes over the payload of these flows
-- column: sentence; the finding in words
-- The first row of a job is the one with the largest share. 1% of lost packets is less of the bytes, where some packets are small. Where more than two
-- thirds are there again, they are copies of packets, as in verdicts (check captured_copies), and there is no row.
WITH thresholds AS (
    SELECT 0.005 AS least_share, 2 / 3 AS most_share
), links AS (
    SELECT run_id, job, src_ip, dst_ip, sum(retransmitted_bytes)::BIGINT AS again_bytes, again_bytes / nullif(sum(payload_bytes), 0) AS share
    FROM job_flows
    JOIN flows USING (run_id, flow_id)
    GROUP BY run_id, job, src_ip, dst_ip
)
SELECT l.*,
       format('{} MB from {} to {} ({}% of that link''s bytes) were sent again.', format(CASE WHEN again_bytes < 1e8 THEN '{:.3g}' ELSE '{:.0f}' END, again_bytes / 1e6),
              coalesce(a.label, src_ip), coalesce(b.label, dst_ip), format(CASE WHEN share < 0.1 THEN '{:.2g}' ELSE '{:.0f}' END, 100 * share)) AS sentence
FROM links AS l
LEFT JOIN hosts AS a ON a.run_id = l.run_id AND a.host_ip = src_ip
LEFT JOIN hosts AS b ON b.run_id = l.run_id AND b.host_ip = dst_ip
CROSS JOIN thresholds
WHERE share BETWEEN least_share AND most_share
ORDER BY l.run_id, job, share DESC, src_ip, dst_ip
