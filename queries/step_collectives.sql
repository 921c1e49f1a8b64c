-- question: Which collectives does a step of each training job have, where its steps are right?
-- subject: collectives
-- row: a run, a job and a collective of a step; each ring or tree that runs at once with others is one
-- inputs: job_periods, inferred_jobs, collective_transfers
-- answer: job, kind, tensor_bytes, confidence, communicator, hosts, kind_or
-- column: run_id from inferred_jobs
-- column: job from inferred_jobs
-- column: position from collective_transfers
-- column: communicator; number of its group of hosts in the job, from 0, by their first collective
-- column: kind; all_reduce, all_gather, reduce_scatter, all_to_all or send
-- column: kind_or; what else the same traffic could be; null where nothing else is known
-- column: evidence; what the kind was told by
-- column: tensor_bytes bytes; size as nccl-tests prints it, no volume; of an all-to-all what a host has for all, on average; of a send its payload
-- column: confidence share; estimate of how often kind and hosts are right, from runs with truth: by the evidence, times seen_steps / steps, steady_share, and seen_share where the hosts of the pattern may be more than those seen; it takes the steps of the job for right
-- column: algorithm; ring, rings (several at once), double_binary_tree, star, tree, recursive_doubling, halving_doubling or direct
-- column: channel; number of the ring or tree among those at once, from 0
-- column: hosts; addresses with commas between: of a ring in its order, of a send from and to, else sorted
-- column: steps steps; steps in which it was seen
-- column: start_ms ms; from the start of the step to its first packet, median over steps; of collectives that no pause divides that of all of them, as evidence says
-- column: end_ms ms; from the start of the step to its last packet, median over steps; of collectives that no pause divides that of all of them
WITH found AS (
    SELECT run_id, job, unnest(collectives, max_depth := 2)
    FROM inferred_jobs
), groups AS (
    SELECT run_id, job, list_sort(hosts) AS members, row_number() OVER (PARTITION BY run_id, job ORDER BY min("position")) - 1 AS communicator
    FROM found
    GROUP BY run_id, job, members
), times AS (
    SELECT run_id, job, step, "position", min(first_ns) AS start_ns, max(last_ns) AS end_ns,
           min(start_ns) OVER (PARTITION BY run_id, job, step) AS step_start_ns
    FROM collective_transfers
    GROUP BY run_id, job, step, "position"
), usual AS (
    SELECT run_id, job, "position", count(*) AS seen_steps, median(start_ns - step_start_ns) / 1e6 AS start_ms,
           median(end_ns - step_start_ns) / 1e6 AS end_ms
    FROM times
    GROUP BY run_id, job, "position"
), told_by AS (
    -- right_share: of collectives of runs with truth (docs/collectives.md). seen_power, of seen_share: a ring is closed by its own
    -- flows, a pair or a send may be the part that was seen of any pattern. A send may be a part that paused: stages of a pipeline
    -- ('sends') send several in a step both ways, and exchange nothing else. Three hosts that pass data on and back, from one end of
    -- their chain to the other, send the same for an all-reduce as for a pipeline.
    FROM (VALUES ('ring', 0.98, 0), ('half', 0.5, 0), ('chain', 0.5, 1), ('graph', 0.97, 1), ('direct', 0.8, 1), ('pair', 0.97, 2), ('sends', 0.96, 5),
                 ('send', 0.5, 5))
      AS classes(class, right_share, seen_power)
), counted AS (
    SELECT *, count(*) OVER (PARTITION BY run_id, job, kind, hosts) AS there,
           count(*) FILTER (kind = 'send') OVER of_both - there AS back, count(*) FILTER (kind <> 'send') OVER of_both AS beside
    FROM found
    WINDOW of_both AS (PARTITION BY run_id, job, list_sort(hosts))
), classed AS (
    SELECT *, CASE WHEN kind = 'send' AND there > 1 AND back > 1 AND beside = 0 THEN 'sends'
                   WHEN kind = 'send' THEN 'send'
                   WHEN kind_or = 'reduce_scatter' THEN 'half'
                   WHEN contains(kind_or, 'pipeline') THEN 'chain'
                   WHEN algorithm = 'direct' THEN 'direct'
                   WHEN len(hosts) = 2 THEN 'pair'
                   WHEN algorithm IN ('ring', 'rings', 'double_binary_tree') THEN 'ring'
                   ELSE 'graph' END AS class
    FROM counted
)
SELECT run_id, job, "position", communicator, kind, kind_or, evidence, tensor_bytes,
       least(1, seen_steps / job_periods.steps) * steady_share * right_share * seen_share ** seen_power AS confidence, algorithm, channel,
       array_to_string(found.hosts, ',') AS hosts, seen_steps AS steps, start_ms, end_ms
FROM classed AS found
JOIN told_by USING (class)
JOIN groups USING (run_id, job)
JOIN usual USING (run_id, job, "position")
JOIN job_periods USING (run_id, job)
WHERE groups.members = list_sort(found.hosts)
ORDER BY run_id, job, "position"
