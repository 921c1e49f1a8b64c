-- question: Which runs have parameter servers, are they synchronous, and can the phases of their steps be separated?
-- subject: servers
-- row: a run with a parameter server
-- inputs: runs, parameter_server_logs, parameter_server_pairs, step_synchrony
-- figure: chang section 2 (synchronous training with n servers and w workers)
-- column: run_id from parameter_server_logs
-- column: servers
-- column: known_by
-- column: workers from parameter_server_logs
-- column: workers_with_data
-- column: workers_with_log from parameter_server_logs
-- column: steps_from
-- column: common_share share; part of the steps in which no worker is done before the last has begun (step_synchrony)
-- column: waiting_share share; part of the steps in which no worker has all its parameters before the last worker has sent its gradients; null where a restart left steps out of a log
-- column: whole_share share; part of the workers' transfers in a step of the chief that are whole models; null where each worker has a log
-- column: is_asynchronous; whether workers do not wait for each other; null where one worker exchanges data, or their steps are not known
-- column: problem; why phases cannot be separated; null where they can
-- A synchronous server answers when it has the gradients of all workers: aggregation, then distribution. An
-- asynchronous one answers each worker at once, so that a step has no aggregation and no distribution phase
-- (chang section 2 describes synchronous training). waiting_share sees that on the wire: the parameters that answer a
-- worker's gradients are those that end after them in its step, or where it pulls before it computes, those of its next
-- step. Ends are exact to a base window. A run is asynchronous where either the logs (common_share) or the wire say so.
-- Where a restart left steps out of a log, only the logs tell, counted from the last step; the wire's steps are by number.
-- Steps of a chief are the workers' only where it waits for them in each: then every worker pulls and pushes one model in it, or
-- several (whole_share); a chief that does not wait cuts transfers anywhere.
WITH thresholds AS (
    SELECT 0.5 AS least_waiting_share, -- of the steps: nearly all in synchronous training, a few by chance in asynchronous
           0.9 AS least_whole_share,   -- of the transfers in a chief's steps,
           0.2 AS whole_deviation      -- which may be so far from whole models: what is sent again counts
), ends AS (
    SELECT run_id, worker_ip, step, max(window_ns) AS window_ns,
           max(end_ns) FILTER (phase = 'aggregation') AS gradients_ns,
           max(end_ns) FILTER (phase = 'distribution') AS parameters_ns
    FROM parameter_server_pairs
    GROUP BY ALL
), answers AS (
    SELECT run_id, step, gradients_ns, window_ns,
           CASE WHEN parameters_ns > gradients_ns THEN parameters_ns
                ELSE lead(parameters_ns) OVER (PARTITION BY run_id, worker_ip ORDER BY step) END AS answered_ns
    FROM ends
), waits AS (
    SELECT run_id, step, min(answered_ns) + max(window_ns) >= max(gradients_ns) AS is_waiting
    FROM answers
    GROUP BY run_id, step
    HAVING count(gradients_ns) > 1
), waiting AS (
    SELECT run_id, avg(is_waiting::INTEGER) AS waiting_share
    FROM waits
    GROUP BY run_id
), exchanged AS (
    SELECT run_id, sum(payload_bytes) / coalesce(any_value(model_bytes)::DOUBLE, any_value(model_size_mb) * 1e6) AS models,
           median(sum(payload_bytes)) OVER (PARTITION BY run_id) AS usual_bytes,
           coalesce(models, sum(payload_bytes) / usual_bytes) AS times
    FROM parameter_server_pairs
    JOIN runs USING (run_id)
    GROUP BY run_id, step, phase, worker_ip
), whole AS (
    SELECT run_id, avg((abs(times - greatest(round(times), 1)) <= whole_deviation)::INTEGER) AS whole_share
    FROM exchanged
    CROSS JOIN thresholds
    GROUP BY run_id
), judged AS (
    SELECT l.*, s.common_share, coalesce(s.is_shifted, false) AS is_shifted,
           CASE WHEN NOT coalesce(s.is_shifted, false) THEN waiting_share END AS waiting_share, CASE WHEN steps_from = 'chief' THEN whole_share END AS whole_share,
           CASE WHEN is_shifted THEN s.is_asynchronous
                WHEN workers_with_data > 1 AND l.problem IS NULL AND NOT (steps_from = 'chief' AND whole_share < least_whole_share)
                THEN coalesce(s.is_asynchronous, false) OR coalesce(waiting_share < least_waiting_share, false)
           END AS is_asynchronous
    FROM parameter_server_logs AS l
    LEFT JOIN step_synchrony AS s USING (run_id)
    LEFT JOIN waiting USING (run_id)
    LEFT JOIN whole USING (run_id)
    CROSS JOIN thresholds
)
SELECT run_id, servers, known_by, workers, workers_with_data, workers_with_log, steps_from, common_share, waiting_share,
       whole_share, is_asynchronous,
       CASE WHEN is_asynchronous
            THEN 'asynchronous: workers do not wait for each other, so a step has no aggregation and no distribution phase'
            WHEN is_shifted
            THEN 'a restart left steps out of a log: from there on workers number their steps differently'
            WHEN whole_share < least_whole_share
            THEN 'the chief does not wait for its workers: ' || round(100 * (1 - whole_share))::BIGINT
                 || '% of their transfers in its steps are no whole models, and no worker has a log of all its steps'
            WHEN steps_from = 'chief' AND whole_share IS NULL
            THEN 'the chief alone has a log, and no windows show whether it waits for its workers'
            ELSE problem END AS problem
FROM judged
CROSS JOIN thresholds
ORDER BY run_id
