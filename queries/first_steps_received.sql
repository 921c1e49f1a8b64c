-- question: How much payload does each host receive from each other one in the first steps of its own log?
-- row: a run with a log, a directed pair of hosts and a step
-- inputs: flows, flow_windows, steps, hosts, training_spans
-- column: run_id; run
-- column: src_ip; sender's address
-- column: dst_ip; receiver's address
-- column: step; number of the step in the receiver's log, from 0 to 10
-- column: payload_bytes bytes; payload, without what was sent again, in the windows that begin in the step; in step 0 also since the sender's first step began
-- Where the receiver has no log, the steps are those of the log of the lowest rank.
WITH thresholds AS (
    SELECT 10 AS last_step  -- enough to see what is usual, few enough to read a small part of the windows
), spans AS MATERIALIZED (
    FROM training_spans
), first_logs AS (
    SELECT s.run_id, arg_min(s.worker, (coalesce(rank, 1e9), s.worker)) AS worker
    FROM (SELECT DISTINCT run_id, worker FROM steps) AS s
    LEFT JOIN hosts AS h ON h.run_id = s.run_id AND h.label = s.worker
    GROUP BY s.run_id
), first_steps AS MATERIALIZED (
    SELECT run_id, worker, row_number() OVER (PARTITION BY run_id, worker ORDER BY end_ns, step) - 1 AS step, start_ns, end_ns
    FROM steps
    QUALIFY row_number() OVER (PARTITION BY run_id, worker ORDER BY end_ns, step) - 1 <= (SELECT last_step FROM thresholds)
), limits AS (
    SELECT run_id, min(start_ns) AS first_ns, max(end_ns) AS last_ns
    FROM first_steps
    GROUP BY run_id
), pair_flows AS MATERIALIZED (
    SELECT f.run_id, flow_id, src_ip, dst_ip, coalesce(d.worker, l.worker) AS worker, least(s.start_ns, d.start_ns) AS begin_ns
    FROM flows AS f
    JOIN spans AS s ON s.run_id = f.run_id AND s.host_ip = src_ip
    JOIN spans AS d ON d.run_id = f.run_id AND d.host_ip = dst_ip
    JOIN first_logs AS l ON l.run_id = f.run_id
), early_windows AS MATERIALIZED (
    SELECT run_id, flow_id, window_start_ns, payload_bytes - coalesce(retransmitted_bytes, 0) AS payload_bytes
    FROM flow_windows
    JOIN limits USING (run_id)
    WHERE payload_bytes > 0 AND window_start_ns >= first_ns AND window_start_ns < last_ns
), received AS (
    SELECT run_id, src_ip, dst_ip, worker, window_start_ns, sum(payload_bytes) AS payload_bytes
    FROM early_windows
    JOIN pair_flows USING (run_id, flow_id)
    WHERE window_start_ns >= begin_ns
    GROUP BY ALL
), sums AS (
    SELECT r.run_id, src_ip, dst_ip, step, sum(payload_bytes) AS payload_bytes
    FROM received AS r
    ASOF JOIN (FROM first_steps WHERE start_ns < end_ns) AS s ON s.run_id = r.run_id AND s.worker = r.worker AND r.window_start_ns < s.end_ns
    GROUP BY ALL
), pair_steps AS (
    SELECT DISTINCT run_id, src_ip, dst_ip, step
    FROM pair_flows
    JOIN first_steps USING (run_id, worker)
    WHERE run_id IN (SELECT run_id FROM early_windows)
)
SELECT run_id, src_ip, dst_ip, step, coalesce(payload_bytes, 0)::BIGINT AS payload_bytes
FROM pair_steps
LEFT JOIN sums USING (run_id, src_ip, dst_ip, step)
ORDER BY run_id, src_ip, dst_ip, step
