-- question: Which collectives did profilers record, at which host?
-- subject: timelines
-- row: a collective or transfer that a profiler recorded at a worker
-- inputs: events, worker_hosts, hosts
-- column: run_id from events
-- column: profiler from events
-- column: worker from events
-- column: call; number of the row among those of the profiler and worker, from 0, in the order of time
-- column: host_ip; address of the worker's host; null where no host has its label or rank
-- column: kind; all_reduce, all_gather, all_to_all, or the kind of the event
-- column: bytes from events
-- column: start_ns from events
-- column: end_ns from events
-- column: process_group from events
-- column: sequence from events
WITH of_ranks AS (
    SELECT run_id, 'rank-' || rank AS worker, min(host_ip) AS host_ip
    FROM hosts
    WHERE rank IS NOT NULL
    GROUP BY run_id, rank
)
SELECT e.run_id, profiler, worker,
       row_number() OVER (PARTITION BY e.run_id, profiler, worker
                          ORDER BY start_ns, kind, process_group, sequence) - 1 AS call,
       coalesce(w.host_ip, r.host_ip) AS host_ip,
       CASE kind WHEN 'allreduce' THEN 'all_reduce' WHEN 'allgather' THEN 'all_gather' WHEN 'alltoall' THEN 'all_to_all'
                 ELSE kind END AS kind,
       bytes, start_ns, end_ns, process_group, sequence
FROM events AS e
LEFT JOIN worker_hosts AS w USING (run_id, worker)
LEFT JOIN of_ranks AS r USING (run_id, worker)
WHERE profiler IS NOT NULL AND kind NOT IN ('forward', 'update')
ORDER BY run_id, profiler, worker, call
