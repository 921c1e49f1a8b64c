-- question: Which training jobs share the hosts of a run, and how long is a step of each?
-- subject: collectives
-- row: a run and a job
-- inputs: flows, captures, job_flows, collective_transfers, logged_steps, inferred_steps
-- optional: logged_steps, inferred_steps
-- answer: job, hosts, period_ms, confidence
-- column: run_id from job_flows
-- column: job from job_flows
-- column: hosts; addresses of the hosts that its flows connect, sorted, with commas between
-- column: flows flows; flows that carry its data
-- column: steps steps; steps of which the captures have all bytes
-- column: period_ms ms; median time from the end of a step to the end of the next
-- column: steady_share share; part of the steps whose time is within a factor of 2 of period_ms
-- column: seen_share share; part of the hosts that a capture was taken at; 1 where one was taken between them
-- column: other_steps steps; of the log, without one of inferred_steps; null where neither has any, and where the run has several jobs
-- column: agreed_share share; the lesser over the greater of steps and other_steps, where they differ by more than 2; else 1
-- column: confidence share; steady_share times seen_share times agreed_share: no calibrated probability
-- A job is a set of flows that repeat their bytes in each step, and take their steps together. Two jobs of one step time
-- that never drift are one here. What hosts without a capture send to each other is not seen.
WITH thresholds AS (
    SELECT 2 AS most_apart  -- steps: the first and the last may lack bytes
), ends AS (
    SELECT run_id, job, step, max(last_ns) AS end_ns
    FROM collective_transfers
    GROUP BY run_id, job, step
), times AS (
    SELECT run_id, job, end_ns - lag(end_ns) OVER (PARTITION BY run_id, job ORDER BY step) AS period_ns
    FROM ends
), periods AS (
    SELECT run_id, job, count(*) AS steps, median(period_ns) AS usual_ns,
           list(period_ns) FILTER (period_ns IS NOT NULL) AS times_ns
    FROM times
    GROUP BY run_id, job
), hosts_of_jobs AS (
    SELECT run_id, job, count(DISTINCT flow_id) AS flows, list_sort(list_distinct(flatten(list([src_ip, dst_ip])))) AS hosts
    FROM job_flows
    JOIN flows USING (run_id, flow_id)
    GROUP BY run_id, job
), others AS (
    SELECT run_id, coalesce(l.steps, i.steps) AS other_steps
    FROM (SELECT run_id, count(step) AS steps FROM inferred_steps() WHERE structured GROUP BY run_id) AS i
    FULL JOIN logged_steps AS l USING (run_id)
    SEMI JOIN (SELECT run_id FROM periods GROUP BY run_id HAVING count(*) = 1) USING (run_id)
), vantages AS (
    SELECT run_id, list(DISTINCT vantage_ip) AS host_ips, bool_or(vantage_ip IS NULL) AS is_between
    FROM captures
    GROUP BY run_id
)
SELECT run_id, job, array_to_string(hosts, ',') AS hosts, flows, steps, usual_ns / 1e6 AS period_ms,
       len(list_filter(times_ns, lambda t: t BETWEEN usual_ns / 2 AND 2 * usual_ns)) / len(times_ns) AS steady_share,
       CASE WHEN is_between THEN 1.0 ELSE len(list_intersect(hosts, host_ips)) / len(hosts) END AS seen_share,
       other_steps, CASE WHEN abs(steps - other_steps) > most_apart THEN least(steps, other_steps) / greatest(steps, other_steps) ELSE 1.0 END AS agreed_share,
       steady_share * seen_share * agreed_share AS confidence
FROM hosts_of_jobs
JOIN periods USING (run_id, job)
CROSS JOIN thresholds
LEFT JOIN vantages USING (run_id)
LEFT JOIN others USING (run_id)
ORDER BY run_id, job
