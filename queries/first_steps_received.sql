-- question: How much payload does each host receive from each other one in the first steps of its own log?
-- subject: volume
-- row: a run with a log, a directed pair of hosts and a step
-- inputs: flows, flow_windows, steps, hosts, training_spans, unknown_payload
-- column: run_id
-- column: src_ip
-- column: dst_ip
-- column: step; number of the step in the receiver's log, from 0 to 5
-- column: payload_bytes bytes; payload, without what was sent again, in the windows that begin in the step; in step 0 also since the sender's first step began
-- Where the receiver has no log, the steps are those of the log of the lowest rank.
WITH thresholds AS (
    SELECT 5 AS last_step  -- enough to see what is usual, few enough to read a small part of the windows
), spans AS MATERIALIZED (
    FROM training_spans
), logs AS (
    SELECT run_id, worker, dense_rank() OVER (ORDER BY run_id, worker) AS log_number,
           row_number() OVER (PARTITION BY run_id, worker ORDER BY end_ns, step) - 1 AS step, start_ns, end_ns
    FROM steps
), first_steps AS MATERIALIZED (
    SELECT *
    FROM logs
    WHERE step <= (SELECT last_step FROM thresholds)
), first_logs AS (
    SELECT s.run_id, arg_min(s.worker, (coalesce(rank, 1e9), s.worker)) AS worker
    FROM (SELECT DISTINCT run_id, worker FROM steps) AS s
    LEFT JOIN hosts AS h ON h.run_id = s.run_id AND h.label = s.worker
    GROUP BY s.run_id
), limits AS (
    SELECT run_id, min(start_ns) AS first_ns, max(end_ns) AS last_ns
    FROM first_steps
    GROUP BY run_id
), pair_flows AS MATERIALIZED (
    SELECT f.run_id, flow_id, src_ip, dst_ip, n.log_number, least(s.start_ns, d.start_ns) AS begin_ns
    FROM flows AS f
    JOIN spans AS s ON s.run_id = f.run_id AND s.host_ip = src_ip
    JOIN spans AS d ON d.run_id = f.run_id AND d.host_ip = dst_ip
    JOIN first_logs AS l ON l.run_id = f.run_id
    JOIN first_steps AS n ON n.run_id = f.run_id AND n.worker = coalesce(d.worker, l.worker) AND n.step = 0
), early_windows AS MATERIALIZED (  -- few of all windows; to join these to flows takes a fraction of the time
    SELECT run_id, flow_id, window_start_ns, payload_bytes - coalesce(retransmitted_bytes, 0) AS payload_bytes
    FROM flow_windows
    JOIN limits USING (run_id)
    WHERE payload_bytes > 0 AND window_start_ns >= first_ns AND window_start_ns < last_ns
), flow_steps AS MATERIALIZED (  -- joined before the windows: by time alone, these would meet the steps of all runs
    SELECT run_id, flow_id, src_ip, dst_ip, step, CASE WHEN step = 0 THEN begin_ns ELSE start_ns END AS start_ns, end_ns
    FROM pair_flows AS p
    JOIN (SELECT log_number, step, start_ns, end_ns FROM first_steps) USING (log_number)
), sums AS (
    SELECT run_id, src_ip, dst_ip, step, sum(payload_bytes) AS payload_bytes
    FROM early_windows
    JOIN flow_steps USING (run_id, flow_id)
    WHERE window_start_ns >= start_ns AND window_start_ns < end_ns
    GROUP BY ALL
), pair_steps AS (
    SELECT DISTINCT run_id, src_ip, dst_ip, step
    FROM flow_steps
    WHERE run_id IN (SELECT DISTINCT run_id FROM early_windows) AND run_id NOT IN (SELECT run_id FROM unknown_payload)
)
SELECT run_id, src_ip, dst_ip, step, coalesce(payload_bytes, 0)::BIGINT AS payload_bytes
FROM pair_steps
LEFT JOIN sums USING (run_id, src_ip, dst_ip, step)
ORDER BY run_id, src_ip, dst_ip, step
