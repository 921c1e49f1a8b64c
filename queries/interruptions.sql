-- question: Where does a training stop, and go on later on new connections?
-- subject: collectives
-- row: a run, a job and the next job on the same hosts with the same collectives
-- inputs: events, messages, job_flows, job_periods, job_steps, step_collectives
-- optional: events
-- answer: job, next_job, sentence
-- column: run_id from job_flows
-- column: job from job_flows
-- column: next_job; number of the job that follows
-- column: start_ns ns since the epoch, UTC; last data of the job
-- column: end_ns ns since the epoch, UTC; first data of the next job's first step
-- column: pause_ms ms; from start_ns to end_ns
-- column: steps_before steps; of which the captures have all bytes, before the stop
-- column: steps_after steps; the same of the next job
-- column: rest_share ratio; what the job's flows send behind its last step, over the bytes of a step
-- column: is_within_step; whether that is a part of a step: at least 2%, and less than all
-- column: is_interrupted; whether it was so, or events show that a process or host was killed or restarted on purpose; else another training of the same model may follow
-- column: sentence; the finding in words, without a full stop
-- The same collectives: as many, in this order, of the same kinds, with tensors that differ by 1% at most. A training that saves its state goes on with an earlier step: steps_before and steps_after may count some twice.
-- The next job's first step may be later than its start, as where hosts send parameters before.
WITH thresholds AS (
    SELECT 0.01 AS most_apart,
           0.02 AS least_rest,
           64 AS most_control -- bytes of a message without data
), spans AS (
    SELECT run_id, job, hosts, steps, start_ns, end_ns
    FROM job_periods
    JOIN (SELECT run_id, job, min(start_ns) AS start_ns, max(end_ns) AS end_ns FROM job_steps GROUP BY run_id, job) USING (run_id, job)
    WHERE (SELECT count(*) FROM job_periods AS all_jobs WHERE all_jobs.run_id = job_periods.run_id) > 1
), templates AS (
    SELECT run_id, job, list((kind, list_sort(string_split(hosts, ','))) ORDER BY "position") AS kinds, list(tensor_bytes ORDER BY "position") AS sizes
    FROM step_collectives
    SEMI JOIN spans USING (run_id, job)
    GROUP BY run_id, job
), pairs AS (
    SELECT a.run_id, a.job, b.job AS next_job, a.end_ns, b.start_ns AS resumed_ns, a.steps AS steps_before, b.steps AS steps_after
    FROM spans AS a
    JOIN spans AS b ON a.run_id = b.run_id AND a.hosts = b.hosts AND b.start_ns >= a.end_ns
    JOIN templates AS s ON s.run_id = a.run_id AND s.job = a.job
    JOIN templates AS t ON t.run_id = b.run_id AND t.job = b.job AND s.kinds = t.kinds
    CROSS JOIN thresholds
    WHERE len(list_filter(list_zip(s.sizes, t.sizes), lambda z: abs(z[1] - z[2]) > most_apart * z[1])) = 0
    QUALIFY row_number() OVER (PARTITION BY a.run_id, a.job ORDER BY b.start_ns, b.job) = 1
        AND row_number() OVER (PARTITION BY b.run_id, b.job ORDER BY a.end_ns DESC, a.job) = 1
), step_sizes AS (
    SELECT run_id, job, sum(step_bytes) AS step_bytes
    FROM job_flows
    SEMI JOIN pairs USING (run_id, job)
    GROUP BY run_id, job
), rests AS (
    SELECT p.run_id, p.job, max(first_ns + duration_ns) AS last_ns, sum(bytes) AS rest_bytes
    FROM pairs AS p
    JOIN job_flows USING (run_id, job)
    JOIN messages USING (run_id, flow_id)
    CROSS JOIN thresholds
    WHERE first_ns > end_ns AND first_ns < resumed_ns AND bytes > most_control
    GROUP BY p.run_id, p.job
), killed AS (
    SELECT DISTINCT run_id, true AS is_killed
    FROM events
    WHERE kind IN ('process_killed', 'host_killed', 'restart')
), found AS (
    SELECT run_id, job, next_job, coalesce(last_ns, end_ns) AS stopped_ns, resumed_ns, (resumed_ns - stopped_ns) / 1e6 AS pause_ms, steps_before,
           steps_after, coalesce(rest_bytes, 0) / step_bytes AS rest_share, rest_share >= least_rest AND rest_share < 1 AS is_within_step,
           is_within_step OR coalesce(is_killed, false) AS is_interrupted
    FROM pairs
    JOIN step_sizes USING (run_id, job)
    LEFT JOIN rests USING (run_id, job)
    LEFT JOIN killed USING (run_id)
    CROSS JOIN thresholds
)
SELECT run_id, job, next_job, stopped_ns AS start_ns, resumed_ns AS end_ns, pause_ms, steps_before, steps_after, rest_share, is_within_step, is_interrupted,
       format('The training of job {} stops at {} UTC {} {}, and goes on {} s later on new connections with the same collectives, as job {}: {} before, {} behind{}',
                 job, strftime(make_timestamp(stopped_ns // 1000), '%Y-%m-%d %H:%M:%S'), CASE WHEN is_within_step THEN 'within' ELSE 'behind' END,
                 CASE WHEN is_within_step THEN format('a step ({:.2g}% of its bytes)', 100 * rest_share) ELSE 'a whole step' END,
                 format(CASE WHEN pause_ms < 100_000 THEN '{:.3g}' ELSE '{:.0f}' END, pause_ms / 1e3), next_job,
                 format(CASE WHEN steps_before = 1 THEN '{} whole step' ELSE '{} whole steps' END, steps_before), steps_after,
                 CASE WHEN is_interrupted THEN '. It was interrupted; no host is called late in between'
                      ELSE '. It was interrupted, or another training of the same model follows' END) AS sentence
FROM found
ORDER BY run_id, job
