-- question: How far is each profiler's clock from that of the captures?
-- subject: timelines
-- row: a run, a profiler and a worker
-- inputs: profiler_collectives, step_collectives, collective_transfers
-- column: run_id
-- column: profiler from profiler_collectives
-- column: worker from profiler_collectives
-- column: host_ip from profiler_collectives
-- column: calls; collectives of the worker that are compared: at most 400, evenly chosen
-- column: matched; of these how many fit a collective on the wire at the estimated offset
-- column: rivals; other offsets at which as many fit: where there are any, the one nearest to 0 is taken
-- column: offset_ns ns; to add to the profiler's times to get the captures'; null where nothing fits
-- column: uncertainty_ns ns; how much more or less it may be; null where the profiler knows no end, so that nothing bounds it below: then it is at most offset_ns
-- A host sends the first data of a collective after the call and gets its last data before the end. So each pair of a call and a
-- collective of the same size on the wire allows an interval of offsets, and the offset that most calls allow is taken
-- (Marzullo's algorithm, as in NTP). A call without an end is taken to end before the next one begins, the last one
-- within a minute. Where a worker has no pair of the same size, those of the same kind are taken. The captures'
-- own clocks against each other (captures.clock_offset_ns) are not corrected.
WITH calls AS (
    SELECT *, count(*) OVER of_worker AS n,
           coalesce(lead(start_ns) OVER (of_worker ORDER BY call), start_ns + 60_000_000_000) AS next_ns
    FROM profiler_collectives
    WHERE host_ip IS NOT NULL
    WINDOW of_worker AS (PARTITION BY run_id, profiler, worker)
), chosen AS MATERIALIZED (
    SELECT *
    FROM calls
    WHERE call % greatest(1, n // 200) = 0
), at_hosts AS MATERIALIZED (
    SELECT run_id, job, step, "position", host_ip, kind, kind_or, tensor_bytes,
           min(first_ns) FILTER (src_ip = host_ip) AS sent_ns, max(last_ns) FILTER (dst_ip = host_ip) AS got_ns
    FROM (SELECT *, unnest([src_ip, dst_ip]) AS host_ip FROM collective_transfers)
    JOIN step_collectives USING (run_id, job, "position")
    WHERE run_id IN (SELECT run_id FROM calls)
    GROUP BY ALL
), pairs AS (
    SELECT c.run_id, profiler, worker, call, sent_ns - start_ns AS most_ns,
           got_ns - coalesce(end_ns, next_ns) AS least_ns, abs(tensor_bytes - bytes) <= 0.05 * bytes IS TRUE AS is_size,
           bool_or(abs(tensor_bytes - bytes) <= 0.05 * bytes) OVER (PARTITION BY c.run_id, profiler, worker) AS any_size
    FROM chosen AS c
    JOIN at_hosts AS w
      ON w.run_id = c.run_id AND w.host_ip = c.host_ip
     AND (abs(tensor_bytes - bytes) <= 0.05 * bytes OR w.kind = c.kind)
    WHERE sent_ns IS NOT NULL AND got_ns IS NOT NULL
), allowed AS (  -- each once, so that both windows below have one order
    SELECT DISTINCT run_id, profiler, worker, call, least_ns, most_ns
    FROM pairs
    WHERE least_ns <= most_ns AND (is_size OR any_size IS NOT TRUE)
), begun AS (  -- intervals of one call that run into each other are one
    SELECT *, coalesce(least_ns > max(most_ns) OVER (of_call ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), true)
                  ::INTEGER AS is_apart
    FROM allowed
    WINDOW of_call AS (PARTITION BY run_id, profiler, worker, call ORDER BY least_ns, most_ns)
), numbered AS (
    SELECT *, sum(is_apart) OVER (PARTITION BY run_id, profiler, worker, call ORDER BY least_ns, most_ns
                                  ROWS UNBOUNDED PRECEDING) AS number
    FROM begun
), intervals AS (
    SELECT run_id, profiler, worker, call, number, min(least_ns) AS least_ns, max(most_ns) AS most_ns
    FROM numbered
    GROUP BY ALL
), bounds AS (
    SELECT run_id, profiler, worker, least_ns AS bound_ns, 1 AS change FROM intervals
    UNION ALL
    SELECT run_id, profiler, worker, most_ns, -1 FROM intervals
), swept AS (
    SELECT *, sum(change) OVER (in_order ROWS UNBOUNDED PRECEDING) AS fit, lead(bound_ns) OVER in_order AS next_ns
    FROM bounds
    WINDOW in_order AS (PARTITION BY run_id, profiler, worker ORDER BY bound_ns, change DESC)
), most AS (
    SELECT *, row_number() OVER (PARTITION BY run_id, profiler, worker
                                 ORDER BY abs(bound_ns + (next_ns - bound_ns) // 2), bound_ns) AS place,
           count(*) OVER (PARTITION BY run_id, profiler, worker) - 1 AS rivals
    FROM (SELECT *, max(fit) OVER (PARTITION BY run_id, profiler, worker) AS most_fit FROM swept)
    WHERE fit = most_fit AND change = 1
), workers AS (
    SELECT run_id, profiler, worker, host_ip, count(*) AS calls, bool_or(end_ns IS NOT NULL) AS has_end
    FROM chosen
    GROUP BY ALL
    UNION ALL
    SELECT run_id, profiler, worker, NULL, 0, false
    FROM profiler_collectives
    WHERE host_ip IS NULL
    GROUP BY ALL
)
SELECT run_id, profiler, worker, host_ip, calls, coalesce(fit, 0)::BIGINT AS matched, coalesce(rivals, 0) AS rivals,
       CASE WHEN has_end THEN bound_ns + (next_ns - bound_ns) // 2 ELSE next_ns END AS offset_ns,
       CASE WHEN has_end THEN (next_ns - bound_ns + 1) // 2 END AS uncertainty_ns
FROM workers
LEFT JOIN (FROM most WHERE place = 1) USING (run_id, profiler, worker)
ORDER BY run_id, profiler, worker
