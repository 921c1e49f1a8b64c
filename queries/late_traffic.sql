-- question: Does a host send or get other traffic while all others of its training job wait for it?
-- subject: delays
-- row: a run, a job and a host that is late in this way
-- inputs: hosts, flow_windows, job_periods, job_flows, flows, collective_entries, other_flows
-- answer: host_ip, late_ms, met_ms, activity
-- column: run_id from job_periods
-- column: job from job_periods
-- column: host_ip from collective_entries
-- column: late_ms ms; in all steps behind the first: from the entry of the last other host to its own, where it enters a collective behind all
-- column: met_ms ms; of that: windows with other traffic of the host; half of late_ms at least
-- column: met_bytes bytes; of other traffic, from it or to it, in these windows
-- column: times_as_fast ratio; its rate then over that in the rest of the job's time; two at least; null where there is none in the rest
-- column: src_ip from other_flows
-- column: dst_ip from other_flows
-- column: port; that of the accepting host. The pair and port have most of these bytes
-- column: activity; what it sends or gets then, in words
-- A checkpoint that a host writes to a file server makes it late as slow computing does: nobody sees from the times alone which it is.
-- The traffic counts where it comes with the lateness: during half of it and at twice the rate of the rest. What goes on all the time does not.
-- A flow of less than 0.1% of the job's bytes is left out. The step may wait for the traffic, or both may have the same cause.
WITH thresholds AS (
    SELECT 0.001 AS least_of_flow, 0.5 AS least_met, 2 AS least_times
), entered AS (
    SELECT e.run_id, job, host_ip, entry_ns, free_ns,
           max(entry_ns) OVER (PARTITION BY e.run_id, job, step, "position" ORDER BY entry_ns, host_ip
                               ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE CURRENT ROW) AS others_ns
    FROM collective_entries AS e
    JOIN job_periods USING (run_id, job)
    WHERE step > 0 AND own_ms IS NOT NULL AND NOT is_waiting AND len(string_split(hosts, ',')) > 2
), late AS (  -- a host enters the channels of a communicator at once
    SELECT run_id, job, host_ip, entry_ns AS end_ns, max(greatest(others_ns, free_ns)) AS start_ns
    FROM entered
    WHERE entry_ns > others_ns
    GROUP BY run_id, job, host_ip, entry_ns
), sums AS (
    SELECT run_id, job, host_ip, sum(end_ns - start_ns) AS late_ns
    FROM late
    GROUP BY run_id, job, host_ip
), periods AS (
    SELECT run_id, job, min(free_ns) AS start_ns, max(entry_ns) AS end_ns, max(entry_ns) - min(free_ns) AS whole_ns
    FROM entered
    GROUP BY run_id, job
), job_sizes AS (
    SELECT run_id, job, sum(payload_bytes) AS job_bytes
    FROM job_flows
    JOIN flows USING (run_id, flow_id)
    GROUP BY run_id, job
), candidates AS MATERIALIZED (  -- without times, of which there are many
    SELECT run_id, job, host_ip, flow_id, src_ip, dst_ip, to_port AS port
    FROM other_flows
    JOIN job_sizes USING (run_id)
    JOIN sums USING (run_id, job)
    CROSS JOIN thresholds
    WHERE payload_bytes > least_of_flow * job_bytes AND host_ip IN (src_ip, dst_ip)
), windows AS (
    SELECT c.*, window_start_ns, window_ns, w.payload_bytes
    FROM candidates AS c
    JOIN periods USING (run_id, job)
    JOIN flow_windows AS w USING (run_id, flow_id)
    WHERE window_start_ns BETWEEN start_ns AND end_ns AND w.payload_bytes > 0
), met AS (  -- the lateness that ends next
    SELECT w.*, coalesce(window_start_ns + window_ns > start_ns, false) AS is_late,
           least(window_start_ns + window_ns, end_ns) - greatest(window_start_ns, start_ns) AS both_ns
    FROM windows AS w
    ASOF LEFT JOIN late AS l
      ON w.run_id = l.run_id AND w.job = l.job AND w.host_ip = l.host_ip AND w.window_start_ns < l.end_ns
), times AS (  -- a window with several flows counts once
    SELECT run_id, job, host_ip, sum(both_ns) AS met_ns
    FROM (SELECT run_id, job, host_ip, window_start_ns, any_value(both_ns) AS both_ns FROM met WHERE is_late GROUP BY ALL)
    GROUP BY run_id, job, host_ip
), pairs AS (
    SELECT run_id, job, host_ip, src_ip, dst_ip, port, coalesce(sum(payload_bytes) FILTER (is_late), 0) AS late_bytes, sum(payload_bytes) AS all_bytes
    FROM met
    GROUP BY ALL
), volumes AS (
    SELECT run_id, job, host_ip, sum(late_bytes)::BIGINT AS payload_bytes, sum(all_bytes) AS all_bytes,
           max(late_bytes) AS most_bytes, max_by(struct_pack(src_ip, dst_ip, port), (late_bytes, src_ip, dst_ip)) AS most
    FROM pairs
    GROUP BY run_id, job, host_ip
), rated AS (
    SELECT *, payload_bytes / late_ns / nullif((all_bytes - payload_bytes) / nullif(whole_ns - late_ns, 0), 0) AS times_as_fast
    FROM volumes
    JOIN times USING (run_id, job, host_ip)
    JOIN sums USING (run_id, job, host_ip)
    JOIN periods USING (run_id, job)
)
SELECT r.run_id, job, r.host_ip, late_ns / 1e6 AS late_ms, met_ns / 1e6 AS met_ms, payload_bytes AS met_bytes, times_as_fast,
       most.src_ip AS src_ip, most.dst_ip AS dst_ip, most.port AS port,
       format('while it {} {} MB {} {}{}', CASE most.src_ip WHEN r.host_ip THEN 'sends' ELSE 'gets' END,
              format(CASE WHEN most_bytes < 1e8 THEN '{:.3g}' ELSE '{:.0f}' END, most_bytes / 1e6),
              CASE most.src_ip WHEN r.host_ip THEN 'to' ELSE 'from' END, coalesce(label, CASE most.src_ip WHEN r.host_ip THEN most.dst_ip ELSE most.src_ip END),
              CASE WHEN most.port IS NULL THEN '' ELSE format(', port {}', most.port) END) AS activity
FROM rated AS r
LEFT JOIN hosts AS h ON h.run_id = r.run_id AND h.host_ip = CASE most.src_ip WHEN r.host_ip THEN most.dst_ip ELSE most.src_ip END
CROSS JOIN thresholds
WHERE met_ns >= least_met * late_ns AND coalesce(times_as_fast >= least_times, true)
ORDER BY r.run_id, job, r.host_ip
