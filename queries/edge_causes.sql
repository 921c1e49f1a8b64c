-- question: What makes a link slow in a collective: a longer way, other traffic, several other senders at once, the receiver's window?
-- subject: delays
-- row: a run, a job, a step, a collective, and a sender and receiver of its data, as edge_times
-- inputs: flows, flow_windows, job_flows, step_collectives, collective_transfers, edge_times, answer_times
-- answer: step, src_ip, dst_ip, extra_ms, other_bytes
-- column: run_id from edge_times
-- column: job from edge_times
-- column: step
-- column: position
-- column: src_ip
-- column: dst_ip
-- column: excess_ms from edge_times
-- column: stalled_ms from edge_times
-- column: extra_ms from answer_times
-- column: late_ms ms; extra_ms as often as the longest chain of messages crosses the link: twice in an all-reduce on a ring, else once
-- column: other_bytes bytes; wire_bytes of flows that are not the job's in windows of the collective: out of the sender, or in to the receiver, whichever is more
-- column: incast_bytes bytes; part of other_bytes in windows in which two other hosts or more send to the receiver
-- column: window_bytes bytes; least receive_window_bytes that the receiver has offered on the link; null where it is not known
-- column: is_window_small; whether window_bytes is below a quarter of the median of the job's links, below what the link carries in the collective, and below the longest stretch of edge_times: then it, and no queue, bounds the rate
-- other_bytes are counted on the way that the job's data takes: what a host receives does not slow what it sends.
WITH thresholds AS (
    SELECT 4 AS times_smaller, 131072 AS most_bytes
), own AS (
    SELECT DISTINCT run_id, unnest([flow_id, reverse_flow_id]) AS flow_id
    FROM job_flows
    JOIN flows USING (run_id, flow_id)
), transfers AS (
    SELECT run_id, job, step, "position", src_ip, dst_ip, min(first_ns) AS first_ns, max(last_ns) AS last_ns
    FROM collective_transfers
    GROUP BY ALL
), links AS (
    SELECT DISTINCT run_id, job, src_ip, dst_ip
    FROM transfers
), others AS (
    SELECT w.run_id, src_ip, dst_ip, window_start_ns, window_ns, sum(wire_bytes)::BIGINT AS wire_bytes
    FROM (SELECT run_id, flow_id, window_start_ns, window_ns, wire_bytes FROM flow_windows ANTI JOIN own USING (run_id, flow_id)) AS w
    JOIN (SELECT run_id, flow_id, src_ip, dst_ip FROM flows) USING (run_id, flow_id)
    GROUP BY ALL
), beside AS (
    SELECT run_id, job, l.src_ip, l.dst_ip, o.window_start_ns, o.window_ns, 'in' AS way, sum(wire_bytes)::BIGINT AS wire_bytes, count(*) AS senders
    FROM links AS l
    JOIN others AS o USING (run_id, dst_ip)
    GROUP BY ALL
    UNION ALL
    SELECT run_id, job, l.src_ip, l.dst_ip, o.window_start_ns, o.window_ns, 'out', sum(wire_bytes)::BIGINT, 1
    FROM links AS l
    JOIN others AS o USING (run_id, src_ip)
    GROUP BY ALL
), met AS (
    SELECT run_id, job, step, "position", src_ip, dst_ip, max(wire_bytes) AS other_bytes, max(incast_bytes) AS incast_bytes
    FROM (SELECT t.run_id, t.job, t.step, t."position", t.src_ip, t.dst_ip, way, sum(wire_bytes)::BIGINT AS wire_bytes,
                 coalesce(sum(wire_bytes) FILTER (senders > 1), 0)::BIGINT AS incast_bytes
          FROM beside AS b
          ASOF JOIN (FROM transfers  -- of two that begin at once the first, and not either by chance
                     QUALIFY row_number() OVER (PARTITION BY run_id, job, src_ip, dst_ip, first_ns ORDER BY step, "position") = 1) AS t
            ON b.run_id = t.run_id AND b.job = t.job AND b.src_ip = t.src_ip AND b.dst_ip = t.dst_ip
               AND b.window_start_ns + b.window_ns > t.first_ns
          WHERE b.window_start_ns <= t.last_ns
          GROUP BY ALL)
    GROUP BY ALL
), offered AS (
    SELECT run_id, job, f.src_ip, f.dst_ip, min(r.receive_window_bytes) AS window_bytes
    FROM job_flows
    JOIN flows AS f USING (run_id, flow_id)
    JOIN flows AS r ON r.run_id = f.run_id AND r.flow_id = f.reverse_flow_id
    GROUP BY run_id, job, f.src_ip, f.dst_ip
), windows AS (
    SELECT *, median(window_bytes) OVER (PARTITION BY run_id, job) AS usual_bytes
    FROM offered
    SEMI JOIN links USING (run_id, job, src_ip, dst_ip)
), crossed AS (
    SELECT run_id, job, "position", CASE WHEN kind = 'all_reduce' AND algorithm IN ('ring', 'rings') THEN 2 ELSE 1 END AS times
    FROM step_collectives
)
SELECT run_id, job, step, "position", src_ip, dst_ip, excess_ms, stalled_ms, coalesce(extra_ms, 0) AS extra_ms, times * coalesce(extra_ms, 0) AS late_ms,
       coalesce(other_bytes, 0) AS other_bytes, coalesce(incast_bytes, 0) AS incast_bytes, window_bytes,
       coalesce(window_bytes < least(usual_bytes / times_smaller, payload_bytes, most_bytes), false) AS is_window_small
FROM edge_times
CROSS JOIN thresholds
JOIN crossed USING (run_id, job, "position")
LEFT JOIN answer_times USING (run_id, job, step, src_ip, dst_ip)
LEFT JOIN met USING (run_id, job, step, "position", src_ip, dst_ip)
LEFT JOIN windows USING (run_id, job, src_ip, dst_ip)
ORDER BY run_id, job, step, "position", src_ip, dst_ip
