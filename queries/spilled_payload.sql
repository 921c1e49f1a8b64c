-- question: How much payload that belongs to the logged steps does each pair of hosts send outside the sender's steps?
-- subject: volume
-- row: a run with a log and a directed pair of hosts
-- inputs: flows, flow_windows, step_flows, steps, training_spans
-- column: run_id
-- column: src_ip
-- column: dst_ip
-- column: early_bytes bytes; payload before the sender's first step that is in a step of the receiver; negative: payload of the time before that is still sent in the sender's first step
-- column: late_bytes bytes; payload after the sender's last step, but not after the receiver's, less payload in the sender's steps that is after the receiver's
-- column: retransmitted_bytes bytes; part of early_bytes and late_bytes that was sent again; null in runs that were not captured
-- A step of a worker ends when it has received what it needs; what it has to send may then still wait in a socket. So
-- payload belongs to the logged steps until the receiver's last step ends (training_spans). Where the receiver has no
-- log, until the pair is first silent after the last end in any log, for a fifth of a mean step.
-- What a pair sends around the first start without such a silence before it is left of a step that warms up, or of the model.
-- Windows count to the whole that begin at or after an end, or end at or before a start; all else is exact, from
-- step_flows. The sender's steps are those of the log by which step_flows bins its packets; where that is the receiver's
-- own, nothing is spilled. Null without flow_windows.
WITH thresholds AS (
    SELECT 0.2 AS silent_share  -- of a mean step: TCP pauses for less, and computation takes more
), spans AS MATERIALIZED (
    FROM training_spans
), limits AS (
    SELECT run_id, max(start_ns) AS last_start_ns, min(end_ns) AS first_end_ns
    FROM spans
    GROUP BY run_id
), silences AS (
    SELECT run_id, silent_share * avg(end_ns - start_ns) AS silence_ns
    FROM steps
    CROSS JOIN thresholds
    GROUP BY run_id, silent_share
), logs AS (
    SELECT run_id, worker, min(start_ns) AS start_ns
    FROM steps
    GROUP BY run_id, worker
), flow_sums AS (
    SELECT run_id, flow_id, min(worker) AS worker, coalesce(sum(payload_bytes) FILTER (position = 'before'), 0) AS before_bytes,
           coalesce(sum(payload_bytes) FILTER (position = 'after'), 0) AS after_bytes,
           coalesce(sum(retransmitted_bytes) FILTER (position = 'before'), 0) AS again_before,
           coalesce(sum(retransmitted_bytes) FILTER (position = 'after'), 0) AS again_after,
           count(retransmitted_bytes) > 0 AS is_known
    FROM step_flows
    GROUP BY run_id, flow_id
), sent AS MATERIALIZED (
    SELECT f.*, src_ip, dst_ip, l.start_ns AS sender_start_ns,
           r.start_ns AS receiver_start_ns, r.end_ns AS receiver_end_ns, r.worker IS NULL AS is_without_log,
           r.worker IS DISTINCT FROM f.worker AS has_late, has_late AND r.start_ns < l.start_ns AS has_early
    FROM flow_sums AS f
    JOIN logs AS l ON l.run_id = f.run_id AND l.worker = f.worker
    JOIN flows ON flows.run_id = f.run_id AND flows.flow_id = f.flow_id
    JOIN spans AS r ON r.run_id = f.run_id AND r.host_ip = dst_ip
), edge_windows AS MATERIALIZED (  -- few of all windows; to join these to flows takes a fraction of the time
    SELECT run_id, flow_id, window_start_ns, window_start_ns + window_ns AS window_end_ns, payload_bytes, retransmitted_bytes
    FROM flow_windows
    JOIN limits USING (run_id)
    WHERE payload_bytes > 0 AND (window_start_ns >= first_end_ns OR window_start_ns + window_ns <= last_start_ns)
), early_windows AS (
    SELECT *, coalesce(window_start_ns - lag(window_end_ns) OVER (PARTITION BY run_id, src_ip, dst_ip ORDER BY window_start_ns) > silence_ns, true)
                  AS is_after_silence
    FROM edge_windows
    JOIN sent USING (run_id, flow_id)
    JOIN silences USING (run_id)
    WHERE window_start_ns < greatest(sender_start_ns, receiver_start_ns)
), begun_windows AS (
    SELECT *, bool_or(is_after_silence AND window_end_ns > least(sender_start_ns, receiver_start_ns))
                  OVER (PARTITION BY run_id, src_ip, dst_ip ORDER BY window_start_ns) AS is_begun
    FROM early_windows
), early AS (
    SELECT run_id, flow_id,
           coalesce(sum(payload_bytes) FILTER (is_too_early), 0) AS too_early_bytes, coalesce(sum(payload_bytes) FILTER (is_left), 0) AS left_bytes,
           sum(retransmitted_bytes) FILTER (is_too_early) AS again_too_early, sum(retransmitted_bytes) FILTER (is_left) AS again_left
    FROM (SELECT *, window_end_ns <= receiver_start_ns OR (window_end_ns <= sender_start_ns AND NOT is_begun) AS is_too_early,
                 window_start_ns >= sender_start_ns AND window_end_ns <= receiver_start_ns AND NOT is_begun AS is_left
          FROM begun_windows)
    GROUP BY run_id, flow_id
), late_windows AS (
    SELECT *, coalesce(lag(window_end_ns) OVER (PARTITION BY run_id, src_ip, dst_ip ORDER BY window_start_ns), receiver_end_ns)
                  AS since_ns, window_start_ns - since_ns > silence_ns AS is_after_silence
    FROM edge_windows
    JOIN sent USING (run_id, flow_id)
    JOIN silences USING (run_id)
    WHERE window_start_ns >= receiver_end_ns
), judged_windows AS (
    SELECT *, NOT is_without_log OR bool_or(is_after_silence) OVER (PARTITION BY run_id, src_ip, dst_ip ORDER BY window_start_ns) AS is_late
    FROM late_windows
), late AS (
    SELECT run_id, flow_id, sum(payload_bytes) AS too_late_bytes, sum(retransmitted_bytes) AS again_too_late
    FROM judged_windows
    WHERE is_late
    GROUP BY run_id, flow_id
), runs_with_windows AS (
    SELECT DISTINCT run_id FROM flow_windows
), spilled AS (
    SELECT *, CASE WHEN has_early THEN before_bytes - coalesce(too_early_bytes, 0) WHEN has_late THEN -coalesce(left_bytes, 0) ELSE 0 END AS early_bytes,
           CASE WHEN has_late THEN after_bytes - coalesce(too_late_bytes, 0) ELSE 0 END AS late_bytes,
           CASE WHEN is_known THEN CASE WHEN has_early THEN again_before - coalesce(again_too_early, 0) WHEN has_late THEN -coalesce(again_left, 0) ELSE 0 END
                                   + CASE WHEN has_late THEN again_after - coalesce(again_too_late, 0) ELSE 0 END END AS again
    FROM sent
    LEFT JOIN early USING (run_id, flow_id)
    LEFT JOIN late USING (run_id, flow_id)
)
SELECT s.run_id, src_ip, dst_ip, CASE WHEN has_windows THEN sum(early_bytes) END::BIGINT AS early_bytes,
       CASE WHEN has_windows THEN sum(late_bytes) END::BIGINT AS late_bytes,
       CASE WHEN has_windows THEN sum(again) END::BIGINT AS retransmitted_bytes
FROM spilled AS s
LEFT JOIN (SELECT run_id, true AS has_windows FROM runs_with_windows) AS w ON w.run_id = s.run_id
GROUP BY s.run_id, src_ip, dst_ip, has_windows
ORDER BY s.run_id, src_ip, dst_ip
