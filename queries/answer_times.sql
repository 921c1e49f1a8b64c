-- question: How long after a host begins to send to another one does the first packet come back from there?
-- subject: delays
-- row: a run, a job, a step, and a sender and receiver of its data
-- inputs: flows, flow_windows, messages, job_flows, collective_transfers
-- answer: step, src_ip, dst_ip, answer_ms
-- column: run_id from collective_transfers
-- column: job from collective_transfers
-- column: step
-- column: src_ip
-- column: dst_ip
-- column: answer_ms ms; from the first packet of the message behind the longest pause of the step to the middle of the first window in which the reverse flow has a packet; median over this step and its neighbours. Below 0 where both are in one window
-- column: usual_answer_ms ms; first quartile over the links of the job, each with the median over its steps; null where there are not three of them
-- column: extra_ms ms; answer_ms beyond usual_answer_ms, 0 where it is less than a window: the way takes that much longer, or the receiver's kernel
-- The answer is TCP's, so it comes without the program. A sender that was silent for longer has nothing else on its way that could be answered. Both ends have
-- a capture, whose clocks must agree: a clock that is off makes answers longer one way and shorter the other, and is taken off extra_ms.
-- The first step is left out of what is usual.
WITH answers AS (
    SELECT w.run_id, reverse_flow_id AS flow_id, window_start_ns, window_ns
    FROM flow_windows AS w
    JOIN flows USING (run_id, flow_id)
    WHERE reverse_flow_id IS NOT NULL
), sent AS (
    SELECT run_id, flow_id, first_ns,
           first_ns - lag(first_ns + duration_ns) OVER (PARTITION BY run_id, flow_id ORDER BY first_ns) AS pause_ns
    FROM messages
    SEMI JOIN job_flows USING (run_id, flow_id)
), begun AS (
    SELECT t.run_id, job, step, src_ip, dst_ip, t.flow_id, m.first_ns, pause_ns
    FROM sent AS m
    ASOF JOIN collective_transfers AS t
      ON m.run_id = t.run_id AND m.flow_id = t.flow_id AND m.first_ns >= t.first_ns
    WHERE m.first_ns <= t.last_ns
    QUALIFY row_number() OVER (PARTITION BY t.run_id, job, step, src_ip, dst_ip ORDER BY pause_ns DESC NULLS LAST, m.first_ns) = 1
), answered AS (
    SELECT b.run_id, job, step, src_ip, dst_ip, (window_start_ns - b.first_ns + window_ns / 2) / 1e6 AS first_ms, window_ns / 1e6 AS window_ms
    FROM begun AS b
    ASOF JOIN answers AS a
      ON b.run_id = a.run_id AND b.flow_id = a.flow_id AND b.first_ns < a.window_start_ns + a.window_ns
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
