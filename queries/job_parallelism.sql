-- question: How is each training job parallelised: by data, tensors, stages, experts or shards?
-- subject: collectives
-- row: a run and a job
-- inputs: communicators
-- answer: job, parallelism, reason
-- column: run_id
-- column: job
-- column: parallelism; guess: the roles of its groups of hosts (communicators), that of most groups first, with the number of groups and of hosts of each
-- column: reason; what each role is guessed from
-- column: groups groups; groups of hosts
-- column: unknown_groups groups; those of them whose role is unknown
-- A role is a guess (communicators): an all-reduce among all hosts is called data, whatever it adds up.
WITH roles AS (
    SELECT run_id, job, role, count(*) AS groups, min(len(string_split(hosts, ','))) AS least, max(len(string_split(hosts, ','))) AS most,
           mode(role_reason ORDER BY role_reason) AS role_reason
    FROM communicators
    GROUP BY run_id, job, role
)
SELECT run_id, job,
       string_agg(format('{} ({} group{} of {} hosts)', role, roles.groups, CASE WHEN roles.groups > 1 THEN 's' ELSE '' END,
                         CASE WHEN least < most THEN format('{} to {}', least, most) ELSE least::VARCHAR END), ', '
                  ORDER BY roles.groups DESC, role) AS parallelism,
       string_agg(format('{}: {}', role, role_reason), '; ' ORDER BY roles.groups DESC, role) AS reason,
       sum(roles.groups)::BIGINT AS groups, coalesce(sum(roles.groups) FILTER (role = 'unknown'), 0)::BIGINT AS unknown_groups
FROM roles
GROUP BY run_id, job
ORDER BY run_id, job
