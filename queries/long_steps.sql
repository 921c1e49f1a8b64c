-- question: Which steps take at least twice as long as the job's median step, and for whom do they wait?
-- subject: delays
-- row: a run, a job and such a step; none where fewer than five steps are known, and not the first step
-- inputs: flows, messages, job_flows, collective_transfers, collective_entries, critical_path
-- answer: step, step_ms, median_ms, waits_for, host_ip
-- column: run_id from critical_path
-- column: job from critical_path
-- column: step from critical_path
-- column: step_ms ms; all parts of its critical path
-- column: median_ms ms; median of the job's steps but the first
-- column: steps steps; so many of the job are known, but the first
-- column: lost_share share; what this step takes beyond the median, of the time of all these steps
-- column: waits_for; host: the longest part of the path is a host's own time before a collective; all hosts: so is that of the others, or none sends data; collective: it is the data of one
-- column: host_ip; address of the host that entered the collective of that part last
-- column: own_ms ms; own time of that host in the part
-- column: others_ms ms; median own time of the other hosts before that collective, of those that enter it without waiting; null where there are none
-- All hosts pause alike, as for a validation, where less than half of what the step takes beyond the median is the one host's alone. So they do
-- where none sends data of the collective for longer than that half after the last one has entered it, and each writes something (a mean
-- loss, of each batch of a validation) more often than that: a barrier before a pause of one host has nothing in it.
-- A pause of a host (a checkpoint, a garbage collection, an evaluation) is long in a few steps; verdicts needs a cost in most of them.
WITH whole AS (
    SELECT run_id, job, step, sum(own_ms + coalesce(collective_ms, 0)) AS step_ms,
           arg_max({'position': "position", 'host_ip': host_ip, 'own_ms': own_ms, 'collective_ms': collective_ms, 'start_ns': start_ns}, greatest(own_ms, coalesce(collective_ms, 0))) AS longest
    FROM critical_path
    WHERE step > 0
    GROUP BY run_id, job, step
), of_jobs AS (
    SELECT run_id, job, median(step_ms) AS median_ms, count(*) AS steps, sum(step_ms) AS all_ms
    FROM whole
    GROUP BY run_id, job
), long AS (
    SELECT run_id, job, step, step_ms, median_ms, steps, (step_ms - median_ms) / all_ms AS lost_share, longest."position" AS "position",
           longest.host_ip AS host_ip, longest.own_ms AS own_ms, coalesce(longest.collective_ms > longest.own_ms, false) AS is_data,
           longest.start_ns + (longest.own_ms * 1e6)::BIGINT AS entry_ns, ((step_ms - median_ms) / 2 * 1e6)::BIGINT AS half_ns
    FROM whole
    JOIN of_jobs USING (run_id, job)
    WHERE steps >= 5 AND step_ms >= 2 * median_ms
), quiet AS (  -- from the last entry to the first data
    SELECT l.run_id, l.job, l.step, entry_ns, half_ns, min(t.first_ns) AS data_ns
    FROM long AS l
    JOIN collective_transfers AS t USING (run_id, job, step, "position")
    WHERE is_data
    GROUP BY ALL
    HAVING data_ns - entry_ns > half_ns
), own_flows AS (
    SELECT DISTINCT run_id, job, unnest([flow_id, reverse_flow_id]) AS flow_id
    FROM job_flows
    JOIN flows USING (run_id, flow_id)
    SEMI JOIN quiet USING (run_id, job)
), hosts_of_jobs AS (
    SELECT run_id, job, count(DISTINCT src_ip) AS hosts
    FROM own_flows
    JOIN flows USING (run_id, flow_id)
    GROUP BY run_id, job
), written AS (
    SELECT q.run_id, q.job, step, src_ip AS host_ip, half_ns, data_ns, first_ns,
           first_ns - coalesce(lag(first_ns) OVER (PARTITION BY q.run_id, q.job, step, src_ip ORDER BY first_ns), entry_ns) AS pause_ns
    FROM quiet AS q
    JOIN own_flows USING (run_id, job)
    JOIN flows USING (run_id, flow_id)
    JOIN messages AS m ON m.run_id = q.run_id AND m.flow_id = flows.flow_id AND first_ns BETWEEN entry_ns AND data_ns
), alike AS (
    SELECT run_id, job, step, true AS is_alike
    FROM (SELECT run_id, job, step, host_ip, greatest(max(pause_ns), any_value(data_ns) - max(first_ns)) < any_value(half_ns) AS is_often
          FROM written
          GROUP BY run_id, job, step, host_ip)
    JOIN hosts_of_jobs USING (run_id, job)
    GROUP BY run_id, job, step
    HAVING count(*) FILTER (is_often) = any_value(hosts)
)
SELECT l.run_id, l.job, l.step, any_value(step_ms) AS step_ms, any_value(median_ms) AS median_ms, any_value(steps) AS steps,
       any_value(lost_share) AS lost_share,
       CASE WHEN any_value(is_alike) THEN 'all hosts'
            WHEN any_value(is_data) THEN 'collective'
            WHEN any_value(l.own_ms) - median(e.own_ms) < (any_value(step_ms) - any_value(median_ms)) / 2 THEN 'all hosts'
            ELSE 'host' END AS waits_for,
       any_value(l.host_ip) AS host_ip, any_value(l.own_ms) AS own_ms, median(e.own_ms) AS others_ms
FROM long AS l
LEFT JOIN collective_entries AS e
  ON l.run_id = e.run_id AND l.job = e.job AND l.step = e.step AND l."position" = e."position" AND l.host_ip <> e.host_ip AND NOT e.is_waiting
LEFT JOIN alike AS a ON l.run_id = a.run_id AND l.job = a.job AND l.step = a.step
GROUP BY l.run_id, l.job, l.step
ORDER BY l.run_id, l.job, l.step
