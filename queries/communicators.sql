-- question: Which groups of hosts communicate in each training job, and what for?
-- subject: collectives
-- row: a run, a job and a group of hosts
-- inputs: step_collectives
-- column: run_id
-- column: job
-- column: communicator
-- column: hosts; addresses, sorted, with commas between
-- column: channels channels; rings or trees over the same hosts at once
-- column: role; guess: pipeline, expert, sharded_data (FSDP, ZeRO), data or tensor; unknown of other sends
-- column: role_reason; what the guess is from
-- column: calls; collectives of a step
-- column: step_bytes bytes; tensor_bytes of these, added up: no volume, which is in job_steps
-- The role is a guess from kinds, number and hosts: parallel training by tensors and by data may send the same. Sends are those of
-- a pipeline where the job has more hosts, and each of the two sends several of one size a step, as micro-batches are. One a step and
-- back is what a parameter server and its worker send, too. A server that sends as much as it gets looks like an all-reduce
-- over a star: role_reason says so. Experts get data and send it back: two all-to-alls. One of as many bytes as are all-reduced is what hosts
-- that each update a part of the parameters (ZeRO-1) send to all others.
WITH sizes AS (
    SELECT 0.03 AS same_size
), counted AS (
    SELECT run_id, job, communicator, list_sort(string_split(any_value(hosts), ',')) AS members, max(channel) + 1 AS channels,
           list_sort(list_distinct(list(kind))) AS kinds, count(*) AS calls, sum(tensor_bytes)::BIGINT AS step_bytes,
           calls / channels AS channel_calls, kinds = ['all_reduce'] AS only_reduces,
           coalesce(bool_or(starts_with(kind_or, 'a parameter server')), false) AS like_server,
           coalesce(count(*) FILTER (kind = 'all_to_all') = 1 AND bool_or(kind = 'all_to_all' AND contains(kind_or, 'all_gather'))
                    AND abs(sum(tensor_bytes) FILTER (kind = 'all_to_all') - sum(tensor_bytes) FILTER (kind = 'all_reduce'))
                        <= any_value(same_size) * sum(tensor_bytes) FILTER (kind = 'all_reduce'), false) AS has_updated_shards
    FROM step_collectives
    CROSS JOIN sizes
    GROUP BY run_id, job, communicator
), each_way AS (
    SELECT run_id, job, communicator, hosts, count(*) AS sends, max(tensor_bytes) <= (1 + same_size) * min(tensor_bytes) AS of_one_size
    FROM step_collectives
    CROSS JOIN sizes
    WHERE kind = 'send'
    GROUP BY run_id, job, communicator, hosts, same_size
), micro_batches AS (
    SELECT run_id, job, communicator, count(*) = 2 AND bool_and(sends >= several AND of_one_size) AS has_micro_batches
    FROM each_way
    CROSS JOIN (SELECT 3 AS several)
    GROUP BY run_id, job, communicator
), compared AS (
    SELECT *, count(*) OVER of_job > 1 AS has_more_hosts, only_reduces AND channel_calls >= many_calls AND channel_calls >= times_as_many * min(channel_calls) FILTER (only_reduces) OVER of_job AS has_many,
           step_bytes / calls < max(step_bytes / calls) FILTER (only_reduces) OVER of_job AS has_smaller
    FROM counted
    CROSS JOIN (SELECT 4 AS many_calls, 2 AS times_as_many)
    WINDOW of_job AS (PARTITION BY run_id, job)
)
SELECT run_id, job, communicator, array_to_string(members, ',') AS hosts, channels,
       CASE WHEN kinds = ['send'] AND has_micro_batches AND has_more_hosts THEN 'pipeline'
            WHEN kinds = ['send'] THEN 'unknown'
            WHEN has_updated_shards THEN 'sharded_data'
            WHEN 'all_to_all' IN kinds THEN 'expert'
            WHEN 'all_gather' IN kinds AND 'reduce_scatter' IN kinds THEN 'sharded_data'
            WHEN has_many AND has_smaller THEN 'tensor'
            ELSE 'data' END AS role,
       CASE role WHEN 'pipeline' THEN 'each of two hosts sends several of one size a step'
                 WHEN 'unknown' THEN 'sends between two hosts: of a parameter server, of a pipeline, or a part of what was sent'
                 WHEN 'expert' THEN 'an all-to-all among them'
                 WHEN 'sharded_data' THEN CASE WHEN has_updated_shards THEN 'as many bytes go from each to all others as are all-reduced, as updated shards do'
                                               ELSE 'shards are gathered and scattered' END
                 WHEN 'tensor' THEN format('{} all-reduces a step, smaller ones than those of another group', calls)
                 ELSE 'no group has fewer and larger collectives a step' || CASE WHEN like_server THEN '; a parameter server sends the same' ELSE '' END
       END AS role_reason,
       calls, step_bytes
FROM compared
LEFT JOIN micro_batches USING (run_id, job, communicator)
ORDER BY run_id, job, communicator
