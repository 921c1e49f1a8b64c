-- question: What does the time of each collective of each step consist of?
-- subject: delays
-- row: a run, a job, a step and a collective of it
-- inputs: collective_times, collective_entries, edge_times, edge_causes
-- answer: step, position, waiting_ms, slow_link_ms, last_host
-- column: run_id from collective_times
-- column: job from collective_times
-- column: step from collective_times
-- column: position from collective_times
-- column: communicator from collective_times
-- column: span_ms ms; from the first host's entry to the last data; null below 10 ms, as collective_times.duration_ms
-- column: waiting_ms ms; from the first host's entry to the last one's
-- column: transfer_ms ms; payload of the link that has most to send, at usual_gbit_per_s of edge_times: at most the declared rate. Null where neither a link nor the run tells a rate; too short where none is declared and bursts pass the point of capture
-- column: slow_link_ms ms; what the next four leave of the costliest link's cost: the one with the largest excess_ms, above 0, and late_ms
-- column: delay_ms ms; of that link: late_ms, and excess_ms where it has some and nothing below explains it
-- column: other_traffic_ms ms; time of other_bytes but incast_bytes of that link at its usual rate, at most its excess_ms
-- column: incast_ms ms; time of incast_bytes of that link at its usual rate, at most its excess_ms
-- column: receiver_ms ms; excess_ms of that link where the receiver's window is small and no other traffic explains it
-- column: stalled_ms ms; as in edge_times, of the flow that pauses longest
-- column: remainder_ms ms; span_ms less these eight: with its sign. Above 0: rounds that wait for each other, copying, and what is not known. Below 0: parts at the same time
-- column: last_host from collective_times
-- column: slow_from; sender of the costliest link; null where none costs anything
-- column: slow_to; its receiver
-- The remainder is not computed by the terms. The cost of the costliest link is measured, and divided by what was seen beside it: other traffic
-- first, then the receiver's window, then the way's length. A server's own workers, which send to it at once, are in transfer_ms, and so are
-- congestion marks.
WITH entered AS (
    SELECT run_id, job, step, "position", min(entry_ns) AS first_ns, max(entry_ns) AS last_ns
    FROM collective_entries
    GROUP BY run_id, job, step, "position"
), sent AS (
    SELECT run_id, job, step, "position", max(sending_ms - excess_ms) AS transfer_ms, max(stalled_ms) AS stalled_ms
    FROM edge_times
    GROUP BY run_id, job, step, "position"
), costs AS (
    SELECT c.*, greatest(c.excess_ms, 0) AS slower_ms, slower_ms + late_ms AS cost_ms,
           least(incast_bytes * 8 / usual_gbit_per_s / 1e6, slower_ms) AS incast,
           least((other_bytes - incast_bytes) * 8 / usual_gbit_per_s / 1e6, slower_ms - incast) AS other,
           slower_ms - incast - other AS unexplained_ms
    FROM edge_causes AS c
    JOIN edge_times USING (run_id, job, step, "position", src_ip, dst_ip)
), costliest AS (
    SELECT run_id, job, step, "position", src_ip AS slow_from, dst_ip AS slow_to, incast AS incast_ms, other AS other_traffic_ms,
           CASE WHEN is_window_small THEN unexplained_ms ELSE 0 END AS receiver_ms,
           late_ms + CASE WHEN late_ms > 0 AND NOT is_window_small THEN unexplained_ms ELSE 0 END AS delay_ms,
           CASE WHEN late_ms > 0 OR is_window_small THEN 0 ELSE unexplained_ms END AS slow_link_ms
    FROM costs
    WHERE cost_ms > 0
    QUALIFY row_number() OVER (PARTITION BY run_id, job, step, "position" ORDER BY cost_ms DESC, src_ip, dst_ip) = 1
), parts AS (
    SELECT t.*, (t.end_ns - e.first_ns) / 1e6 AS took_ms, (e.last_ns - e.first_ns) / 1e6 AS waiting_ms, transfer_ms, stalled_ms,
           slow_from, slow_to, coalesce(slow_link_ms, 0) AS slow_link_ms, coalesce(delay_ms, 0) AS delay_ms,
           coalesce(other_traffic_ms, 0) AS other_traffic_ms, coalesce(incast_ms, 0) AS incast_ms, coalesce(receiver_ms, 0) AS receiver_ms
    FROM collective_times AS t
    JOIN entered AS e USING (run_id, job, step, "position")
    LEFT JOIN sent USING (run_id, job, step, "position")
    LEFT JOIN costliest USING (run_id, job, step, "position")
)
SELECT run_id, job, step, "position", communicator, CASE WHEN took_ms >= 10 THEN took_ms END AS span_ms, waiting_ms, transfer_ms,
       slow_link_ms, delay_ms, other_traffic_ms, incast_ms, receiver_ms, stalled_ms,
       span_ms - waiting_ms - transfer_ms - slow_link_ms - delay_ms - other_traffic_ms - incast_ms - receiver_ms - stalled_ms AS remainder_ms, last_host,
       slow_from, slow_to
FROM parts
ORDER BY run_id, job, step, "position"
