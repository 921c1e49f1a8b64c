-- question: Which groups of hosts communicate in each training job, and what for?
-- subject: collectives
-- row: a run, a job and a group of hosts
-- inputs: collectives
-- column: run_id
-- column: job
-- column: communicator
-- column: hosts; addresses, sorted, with commas between
-- column: channels channels; rings or trees over the same hosts at once
-- column: role; guess: pipeline, expert, sharded_data (FSDP, ZeRO), data or tensor
-- column: role_reason; what the guess is from
-- column: calls; collectives of a step
-- column: step_bytes bytes; tensor_bytes of these, added up
-- The role is a guess from kinds, number and hosts: parallel training by tensors and by data may send the same.
WITH counted AS (
    SELECT run_id, job, communicator, list_sort(string_split(any_value(hosts), ',')) AS members, max(channel) + 1 AS channels,
           list_sort(list_distinct(list(kind))) AS kinds, count(*) AS calls, sum(tensor_bytes)::BIGINT AS step_bytes,
           calls / channels AS channel_calls, kinds = ['all_reduce'] AS only_reduces
    FROM collectives
    GROUP BY run_id, job, communicator
), compared AS (
    SELECT *, only_reduces AND channel_calls >= many_calls AND channel_calls >= times_as_many * min(channel_calls) FILTER (only_reduces) OVER of_job AS has_many,
           step_bytes / calls < max(step_bytes / calls) FILTER (only_reduces) OVER of_job AS has_smaller
    FROM counted
    CROSS JOIN (SELECT 4 AS many_calls, 2 AS times_as_many)
    WINDOW of_job AS (PARTITION BY run_id, job)
)
SELECT run_id, job, communicator, array_to_string(members, ',') AS hosts, channels,
       CASE WHEN kinds = ['send'] THEN 'pipeline'
            WHEN 'all_to_all' IN kinds THEN 'expert'
            WHEN 'all_gather' IN kinds AND 'reduce_scatter' IN kinds THEN 'sharded_data'
            WHEN has_many AND has_smaller THEN 'tensor'
            ELSE 'data' END AS role,
       CASE role WHEN 'pipeline' THEN 'sends from one host to another'
                 WHEN 'expert' THEN 'an all-to-all among them'
                 WHEN 'sharded_data' THEN 'shards are gathered and scattered'
                 WHEN 'tensor' THEN format('{} all-reduces a step, smaller ones than those of another group', calls)
                 ELSE 'no group has fewer and larger collectives a step' END AS role_reason,
       calls, step_bytes
FROM compared
ORDER BY run_id, job, communicator
