-- question: Do the captures of a run hold more than one training job?
-- subject: runs
-- row: a run in which a job is seen
-- inputs: job_periods, job_steps, events, topology_matches
-- optional: events
-- column: run_id from job_periods
-- column: jobs jobs; training jobs that the traffic shows
-- column: shared_hosts hosts; hosts of more than one of them
-- column: is_interrupted; whether a process or host was killed or restarted on purpose: a job that follows may be the same training
-- column: is_pair_averaging; whether the run has jobs with hosts in common and the topology of pair averaging, in which pairs meet at random and hosts have no common steps: they may be one training
-- column: problem; what to do about several jobs; null where there is one, and where is_interrupted explains them
-- Jobs on hosts in common may be one asynchronous training, as a parameter server's workers, or the two directions of one exchange.
-- Jobs on hosts in common, each of which starts when the one before has ended, may be a training that was started again.
-- Topology, totals, steps of the log and fits of a run are of all its jobs together.
WITH members AS (
    SELECT run_id, host_ip, count(*) AS jobs
    FROM (SELECT run_id, job, unnest(string_split(hosts, ',')) AS host_ip FROM job_periods)
    GROUP BY run_id, host_ip
), shared AS (
    SELECT run_id, count(*) FILTER (jobs > 1) AS shared_hosts
    FROM members
    GROUP BY run_id
), times AS (
    SELECT run_id, job, min(start_ns) AS start_ns, max(end_ns) AS end_ns
    FROM job_steps
    GROUP BY run_id, job
), follows AS (
    SELECT run_id, start_ns >= lag(end_ns) OVER (PARTITION BY run_id ORDER BY start_ns) AS is_later
    FROM times
), one_after_the_other AS (
    SELECT run_id, bool_and(is_later) AS is_later
    FROM follows
    GROUP BY run_id
), interrupted AS (
    SELECT DISTINCT run_id, true AS is_interrupted
    FROM events
    WHERE kind IN ('process_killed', 'host_killed', 'restart')
), averaging AS (
    SELECT run_id, true AS is_averaging
    FROM topology_matches
    WHERE topology = 'pair_averaging'
)
SELECT run_id, count(*) AS jobs, any_value(shared_hosts) AS shared_hosts, coalesce(any_value(is_interrupted), false) AS is_interrupted,
       count(*) > 1 AND any_value(shared_hosts) > 0 AND coalesce(any_value(is_averaging), false) AS is_pair_averaging,
       CASE WHEN count(*) > 1 AND any_value(is_interrupted) IS NULL AND any_value(shared_hosts) > 0 AND any_value(is_averaging)
            THEN format('{} jobs on hosts in common are seen, which may be one training in which pairs of hosts meet at random (topology '
                        || 'pair_averaging): its hosts have no common steps, so jobs, collectives and step times of it are doubtful', count(*))
            WHEN count(*) > 1 AND any_value(is_interrupted) IS NULL
            THEN format(CASE WHEN any_value(shared_hosts) = 0 THEN '{} trainings are in its captures: '
                             WHEN any_value(is_later) THEN '{} jobs one after the other on hosts in common are in its captures, a training that was started again or several: '
                             ELSE '{} jobs on hosts in common are in its captures, several trainings or one whose parts do not wait for each other: ' END
                        || 'topology, totals and steps are of all together. Put the captures of each into a '
                        || 'folder of its own, or ingest each by its filter (query job_filters)', count(*))
       END AS problem
FROM job_periods
JOIN shared USING (run_id)
LEFT JOIN one_after_the_other USING (run_id)
LEFT JOIN interrupted USING (run_id)
LEFT JOIN averaging USING (run_id)
GROUP BY run_id
ORDER BY run_id
