-- question: Which collectives make up a step of each training job, in which order, between which hosts, of how many bytes?
-- row: a run, a job and a collective of a step; each ring or tree that runs at once with others is one
-- inputs: jobs, inferred_jobs, collective_transfers
-- column: run_id from inferred_jobs
-- column: job from inferred_jobs
-- column: position from collective_transfers
-- column: communicator; number of its group of hosts in the job, from 0, by their first collective
-- column: kind; all_reduce, all_gather, reduce_scatter, all_to_all or send
-- column: kind_or; what else the same traffic could be; null where nothing else is known
-- column: evidence; what the kind was told by
-- column: tensor_bytes bytes; size as nccl-tests prints it; of an all-to-all what a host has for all, on average; of a send its payload
-- column: confidence share; part of the job's steps in which it was seen, times the job's confidence, the half where hosts send directly: no calibrated probability
-- column: algorithm; ring, rings (several at once), double_binary_tree, star, tree, recursive_doubling, halving_doubling or direct
-- column: channel; number of the ring or tree among those at once, from 0
-- column: hosts; addresses with commas between: of a ring in its order, of a send from and to, else sorted
-- column: steps steps; steps in which it was seen
-- column: start_ms ms; from the start of the step to its first packet, median over steps
-- column: end_ms ms; from the start of the step to its last packet, median over steps
-- A send is what no pattern of several hosts explains: a part of one whose pauses were not seen looks the same. What hosts
-- send directly to all others may be an all-to-all, an all-gather or an all-reduce.
-- On a ring an all-gather and a reduce-scatter send the same, and both together as much as an all-reduce: kind_or says so
-- where neither rounds nor order tell (docs/collectives.md).
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
)
SELECT run_id, job, "position", communicator, kind, kind_or, evidence, tensor_bytes,
       least(1, seen_steps / jobs.steps) * confidence * CASE WHEN algorithm = 'direct' THEN of_direct ELSE 1 END AS confidence, algorithm, channel,
       array_to_string(found.hosts, ',') AS hosts, seen_steps AS steps, start_ms, end_ms
FROM found
JOIN groups USING (run_id, job)
JOIN usual USING (run_id, job, "position")
JOIN jobs USING (run_id, job)
CROSS JOIN (SELECT 0.5 AS of_direct)
WHERE groups.members = list_sort(found.hosts)
ORDER BY run_id, job, "position"
