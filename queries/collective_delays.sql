-- question: What does the time of each collective of each step consist of?
-- subject: delays
-- row: a run, a job, a step and a collective of it
-- inputs: collective_times, collective_entries, edge_times
-- answer: step, position, waiting_ms, slow_link_ms, last_host
-- column: run_id from collective_times
-- column: job from collective_times
-- column: step from collective_times
-- column: position from collective_times
-- column: communicator from collective_times
-- column: span_ms ms; from the first host's entry to the last data; null below 10 ms, as collective_times.duration_ms
-- column: waiting_ms ms; from the first host's entry to the last one's
-- column: transfer_ms ms; payload of the link that has most to send, at usual_gbit_per_s of edge_times
-- column: slow_link_ms ms; largest excess_ms of a link, where it is above 0
-- column: stalled_ms ms; pauses that end with a retransmission, of the flow that pauses longest
-- column: remainder_ms ms; span_ms less these four: with its sign. Above 0: rounds that wait for each other, copying, and what is not known. Below 0: parts at the same time
-- column: last_host from collective_times
-- column: slow_from; sender of the link with the largest excess_ms; null where none is above 0
-- column: slow_to; its receiver
-- Each part is measured by itself; none is what the others leave. Incast, other traffic, the receiver's window and congestion marks
-- have no part of their own: they are in slow_link_ms and remainder_ms.
WITH entered AS (
    SELECT run_id, job, step, "position", min(entry_ns) AS first_ns, max(entry_ns) AS last_ns
    FROM collective_entries
    GROUP BY run_id, job, step, "position"
), sent AS (
    SELECT run_id, job, step, "position", max(sending_ms - excess_ms) AS transfer_ms, greatest(max(excess_ms), 0) AS slow_link_ms,
           max(stalled_ms) AS stalled_ms, arg_max(src_ip, (excess_ms, src_ip, dst_ip)) FILTER (excess_ms > 0) AS slow_from,
           arg_max(dst_ip, (excess_ms, src_ip, dst_ip)) FILTER (excess_ms > 0) AS slow_to
    FROM edge_times
    GROUP BY run_id, job, step, "position"
), parts AS (
    SELECT t.*, (t.end_ns - e.first_ns) / 1e6 AS took_ms, (e.last_ns - e.first_ns) / 1e6 AS waiting_ms, transfer_ms, slow_link_ms,
           stalled_ms, slow_from, slow_to
    FROM collective_times AS t
    JOIN entered AS e USING (run_id, job, step, "position")
    LEFT JOIN sent USING (run_id, job, step, "position")
)
SELECT run_id, job, step, "position", communicator, CASE WHEN took_ms >= 10 THEN took_ms END AS span_ms, waiting_ms, transfer_ms,
       slow_link_ms, stalled_ms, span_ms - waiting_ms - transfer_ms - slow_link_ms - stalled_ms AS remainder_ms, last_host,
       slow_from, slow_to
FROM parts
ORDER BY run_id, job, step, "position"
