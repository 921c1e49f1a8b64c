-- question: How long after a host begins to send to another one does the first packet come back from there?
-- subject: delays
-- row: a run, a job, a step, and a sender and receiver of its data
-- inputs: flows, flow_windows, messages, job_flows, collective_transfers, collective_entries, clock_offsets
-- answer: step, src_ip, dst_ip, answer_ms
-- column: run_id from collective_transfers
-- column: job from collective_transfers
-- column: step
-- column: src_ip
-- column: dst_ip
-- column: answer_ms ms; from the first packet of the message behind the longest pause of the step to the middle of the first window in which the reverse flow has a packet; median over this step and its neighbours. Below 0 where both are in one window; null where none of these counts
-- column: usual_answer_ms ms; first quartile over the links of the job, each with the median over its steps; null where there are not three of them
-- column: extra_ms ms; answer_ms beyond usual_answer_ms, 0 where it is less than a window: the way takes that much longer, or the receiver's kernel
-- A sender that was silent for longer has nothing else on its way that could be answered. A kernel may delay its acknowledgement
-- where the program does not read (Linux: by 40 ms): an answer does not count where the receiver computes for longer than its
-- sender, by half of the time to the answer or more (collective_entries). Both ends have a capture. Where clock_offsets tells that
-- a clock is off, the difference is taken off the answer; less than that makes answers longer one way and shorter the other,
-- which is taken off extra_ms.
-- The first step is left out of what is usual.
WITH thresholds AS (
    SELECT 0.5 AS least_behind  -- of the time to the answer
), answers AS (
    SELECT w.run_id, reverse_flow_id AS flow_id, window_start_ns, window_ns
    FROM flow_windows AS w
    JOIN flows USING (run_id, flow_id)
    WHERE reverse_flow_id IS NOT NULL
), sent AS (
    SELECT run_id, flow_id, first_ns,
           first_ns - lag(first_ns + duration_ns) OVER (PARTITION BY run_id, flow_id ORDER BY first_ns) AS pause_ns
    FROM messages
    SEMI JOIN job_flows USING (run_id, flow_id)
), clocks AS (  -- files of one host share its clock
    SELECT run_id, vantage_ip AS host_ip, any_value(clock_reference_ip) AS reference_ip, any_value(clock_offset_ns) AS offset_ns, bool_or(is_off) AS is_off
    FROM clock_offsets
    GROUP BY run_id, vantage_ip
), ahead AS (
    SELECT s.run_id, s.host_ip AS src_ip, r.host_ip AS dst_ip, r.offset_ns - s.offset_ns AS ahead_ns
    FROM clocks AS s
    JOIN clocks AS r ON r.run_id = s.run_id AND r.reference_ip = s.reference_ip
    WHERE s.is_off OR r.is_off
), begun AS (  -- on the receiver's clock
    SELECT t.run_id, job, step, t.src_ip, t.dst_ip, t.flow_id, m.first_ns + coalesce(ahead_ns, 0) AS first_ns, pause_ns
    FROM sent AS m
    ASOF JOIN collective_transfers AS t
      ON m.run_id = t.run_id AND m.flow_id = t.flow_id AND m.first_ns >= t.first_ns
    LEFT JOIN ahead AS a ON a.run_id = t.run_id AND a.src_ip = t.src_ip AND a.dst_ip = t.dst_ip
    WHERE m.first_ns <= t.last_ns
    QUALIFY row_number() OVER (PARTITION BY t.run_id, job, step, t.src_ip, t.dst_ip ORDER BY pause_ns DESC NULLS LAST, m.first_ns) = 1
), own AS (
    SELECT run_id, job, step, host_ip, max(own_ms) AS own_ms
    FROM collective_entries
    WHERE NOT is_waiting
    GROUP BY run_id, job, step, host_ip
), answered AS (  -- null where the receiver's program may not have read
    SELECT b.run_id, b.job, b.step, src_ip, dst_ip, (window_start_ns - b.first_ns + window_ns / 2) / 1e6 AS whole_ms, window_ns / 1e6 AS window_ms,
           CASE WHEN whole_ms > window_ms AND r.own_ms - s.own_ms >= whole_ms * least_behind THEN NULL ELSE whole_ms END AS first_ms
    FROM begun AS b
    CROSS JOIN thresholds
    ASOF JOIN answers AS a
      ON b.run_id = a.run_id AND b.flow_id = a.flow_id AND b.first_ns < a.window_start_ns + a.window_ns
    LEFT JOIN own AS s ON s.run_id = b.run_id AND s.job = b.job AND s.step = b.step AND s.host_ip = b.src_ip
    LEFT JOIN own AS r ON r.run_id = b.run_id AND r.job = b.job AND r.step = b.step AND r.host_ip = b.dst_ip
    WHERE pause_ns > 2 * window_ns AND window_start_ns - b.first_ns <= pause_ns
), smoothed AS (
    SELECT *, median(first_ms) OVER (PARTITION BY run_id, job, src_ip, dst_ip ORDER BY step
                                     RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS answer_ms
    FROM answered
), usual AS (
    SELECT run_id, job, quantile_cont(link_ms, 0.25) AS usual_answer_ms
    FROM (SELECT run_id, job, src_ip, dst_ip, median(first_ms) AS link_ms FROM answered WHERE step > 0 GROUP BY ALL)
    GROUP BY run_id, job
    HAVING count(*) > 2
), beyond AS (
    SELECT s.*, usual_answer_ms, answer_ms - usual_answer_ms AS beyond_ms
    FROM smoothed AS s
    LEFT JOIN usual USING (run_id, job)
), ways AS (
    SELECT run_id, job, step, src_ip, dst_ip, min(other_ms) AS shortest_ms
    FROM (SELECT a.run_id, a.job, a.step, a.src_ip, a.dst_ip, b.beyond_ms AS other_ms
          FROM beyond AS a
          JOIN beyond AS b ON a.run_id = b.run_id AND a.job = b.job AND a.step = b.step AND (a.dst_ip = b.src_ip OR a.src_ip = b.dst_ip))
    GROUP BY ALL
)
SELECT run_id, job, step, src_ip, dst_ip, answer_ms, usual_answer_ms,
       CASE WHEN beyond_ms >= window_ms THEN greatest(beyond_ms + least(coalesce(shortest_ms, 0) + window_ms, 0), 0) ELSE 0 END AS extra_ms
FROM beyond
LEFT JOIN ways USING (run_id, job, step, src_ip, dst_ip)
ORDER BY run_id, job, step, src_ip, dst_ip
