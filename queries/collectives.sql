-- question: Which collectives make up a step of each training job, in which order, between which hosts, of how many bytes?
-- row: a run, a job and a collective of a step; each ring or tree that runs at once with others is one
-- inputs: jobs, inferred_jobs
-- column: run_id from inferred_jobs
-- column: job from inferred_jobs
-- column: position; number of the collective in the step, from 0, in the order in which they begin
-- column: communicator; number of its group of hosts in the job, from 0, by their first collective
-- column: kind; all_reduce, all_gather, reduce_scatter, all_to_all or send
-- column: kind_or; what else the same traffic could be; null where nothing else is known
-- column: evidence; what the kind was told by
-- column: tensor_bytes bytes; size as nccl-tests prints it; of an all-to-all what a host has for all, on average; of a send its payload
-- column: confidence share; part of the job's steps in which it was seen, times the job's confidence: no calibrated probability
-- column: algorithm; ring, rings (several at once), double_binary_tree or direct
-- column: channel; number of the ring or tree among those at once, from 0
-- column: hosts; addresses with commas between: of a ring in its order, of a send from and to, else sorted
-- column: steps steps; steps in which it was seen
-- On a ring an all-gather and a reduce-scatter send the same, and both together as much as an all-reduce: kind_or says so
-- where neither rounds nor order tell (docs/collectives.md).
WITH found AS (
    SELECT *, len(list_distinct(list_transform(transfers, lambda t: t.step))) AS seen_steps
    FROM (SELECT run_id, job, unnest(collectives, max_depth := 2) FROM inferred_jobs)
), groups AS (
    SELECT run_id, job, list_sort(hosts) AS members, row_number() OVER (PARTITION BY run_id, job ORDER BY min("position")) - 1 AS communicator
    FROM found
    GROUP BY run_id, job, members
)
SELECT run_id, job, "position", communicator, kind, kind_or, evidence, tensor_bytes,
       least(1, seen_steps / jobs.steps) * confidence AS confidence, algorithm, channel, array_to_string(found.hosts, ',') AS hosts, seen_steps AS steps
FROM found
JOIN groups USING (run_id, job)
JOIN jobs USING (run_id, job)
WHERE groups.members = list_sort(found.hosts)
ORDER BY run_id, job, "position"
