-- question: Which steps take at least twice as long as the job's median step, and for whom do they wait?
-- subject: delays
-- row: a run, a job and such a step; none where fewer than five steps are known, and not the first step
-- inputs: collective_entries, critical_path
-- answer: step, step_ms, median_ms, waits_for, host_ip
-- column: run_id from critical_path
-- column: job from critical_path
-- column: step from critical_path
-- column: step_ms ms; all parts of its critical path
-- column: median_ms ms; median of the job's steps but the first
-- column: steps steps; so many of the job are known, but the first
-- column: lost_share share; what this step takes beyond the median, of the time of all these steps
-- column: waits_for; host: the longest part of the path is a host's own time before a collective; all hosts: so is that of the others; collective: it is the data of one
-- column: host_ip; address of the host that entered the collective of that part last
-- column: own_ms ms; own time of that host in the part
-- column: others_ms ms; median own time of the other hosts before that collective, of those that enter it without waiting; null where there are none
-- All hosts pause alike, as for a validation, where less than half of what the step takes beyond the median is the one host's alone.
-- A pause of a host (a checkpoint, a garbage collection, an evaluation) is long in a few steps; verdicts needs a cost in most of them.
WITH whole AS (
    SELECT run_id, job, step, sum(own_ms + coalesce(collective_ms, 0)) AS step_ms,
           arg_max({'position': "position", 'host_ip': host_ip, 'own_ms': own_ms, 'collective_ms': collective_ms}, greatest(own_ms, coalesce(collective_ms, 0))) AS longest
    FROM critical_path
    WHERE step > 0
    GROUP BY run_id, job, step
), of_jobs AS (
    SELECT run_id, job, median(step_ms) AS median_ms, count(*) AS steps, sum(step_ms) AS all_ms
    FROM whole
    GROUP BY run_id, job
), long AS (
    SELECT run_id, job, step, step_ms, median_ms, steps, (step_ms - median_ms) / all_ms AS lost_share, longest."position" AS "position",
           longest.host_ip AS host_ip, longest.own_ms AS own_ms, coalesce(longest.collective_ms > longest.own_ms, false) AS is_data
    FROM whole
    JOIN of_jobs USING (run_id, job)
    WHERE steps >= 5 AND step_ms >= 2 * median_ms
)
SELECT l.run_id, l.job, l.step, any_value(step_ms) AS step_ms, any_value(median_ms) AS median_ms, any_value(steps) AS steps,
       any_value(lost_share) AS lost_share,
       CASE WHEN any_value(is_data) THEN 'collective'
            WHEN any_value(l.own_ms) - median(e.own_ms) < (any_value(step_ms) - any_value(median_ms)) / 2 THEN 'all hosts'
            ELSE 'host' END AS waits_for,
       any_value(l.host_ip) AS host_ip, any_value(l.own_ms) AS own_ms, median(e.own_ms) AS others_ms
FROM long AS l
LEFT JOIN collective_entries AS e
  ON l.run_id = e.run_id AND l.job = e.job AND l.step = e.step AND l."position" = e."position" AND l.host_ip <> e.host_ip AND NOT e.is_waiting
GROUP BY l.run_id, l.job, l.step
ORDER BY l.run_id, l.job, l.step
