-- question: When does the training traffic of a run pause, and how much was sent until then?
-- row: a run and a pause: base windows without payload between two with payload; the first is before all traffic, the last after it
-- inputs: flow_windows, training_flows
-- column: run_id
-- column: window_ns
-- column: start_ns ns since the epoch, UTC; start of the pause; null before all traffic
-- column: end_ns ns since the epoch, UTC; end of the pause; null after all traffic
-- column: idle_ns ns; end_ns - start_ns; null where one is
-- column: payload_before_bytes bytes; payload of the training traffic before the pause
-- column: mix_bytes bytes; the same, each pair's payload times the weight of the pair
-- Training traffic is that of training_flows: large flows without their control messages.
-- The mix identifies the pairs of hosts that send: each directed pair has a fixed weight from 0 to 1. Equal shares of
-- the pairs in two stretches give an equal mix per byte.
WITH large_flows AS MATERIALIZED (
    FROM training_flows
), training AS (
    SELECT run_number, weight, window_start_ns, window_ns, payload_bytes
    FROM flow_windows
    JOIN large_flows USING (run_id, flow_id)
    WHERE payload_bytes > 0 AND (packets IS NULL OR payload_bytes >= packets * least_mean_bytes)
), stretches AS MATERIALIZED (  -- of 60 base windows, a bit for each
    SELECT run_number, window_start_ns // (60 * window_ns) AS stretch, max(window_ns) AS window_ns,
           min(window_start_ns) AS start_ns, max(window_start_ns + window_ns) AS end_ns,
           sum(payload_bytes)::BIGINT AS payload_bytes, sum(payload_bytes * weight)::BIGINT AS mix,
           bit_count(bit_or(1::BIGINT << (window_start_ns // window_ns % 60))) = 60 AS is_full
    FROM training
    GROUP BY run_number, stretch
), partial_stretches AS (
    SELECT run_number, stretch
    FROM stretches
    WHERE NOT is_full
), busy AS MATERIALIZED (  -- window by window only where a pause is near: to order all windows takes ten times as long
    SELECT run_number, window_ns, start_ns, end_ns, payload_bytes, mix
    FROM stretches
    WHERE is_full
    UNION ALL
    SELECT run_number, max(window_ns), window_start_ns, max(window_start_ns + window_ns),
           sum(payload_bytes)::BIGINT, sum(payload_bytes * weight)::BIGINT
    FROM (SELECT run_number, window_start_ns // (60 * window_ns) AS stretch, window_ns, window_start_ns, payload_bytes, weight
          FROM training)
    JOIN partial_stretches USING (run_number, stretch)
    GROUP BY run_number, window_start_ns
), added AS (
    SELECT run_number, window_ns, end_ns,
           lead(start_ns) OVER in_time AS next_start_ns,
           sum(payload_bytes) OVER (in_time ROWS UNBOUNDED PRECEDING) AS payload_before_bytes,
           sum(mix) OVER (in_time ROWS UNBOUNDED PRECEDING) AS mix
    FROM busy
    WINDOW in_time AS (PARTITION BY run_number ORDER BY start_ns)
), pauses AS (
    SELECT run_number, window_ns, end_ns AS start_ns, next_start_ns AS end_ns, payload_before_bytes, mix
    FROM added
    WHERE next_start_ns IS NULL OR next_start_ns > end_ns
    UNION ALL
    SELECT run_number, any_value(window_ns), NULL, min(start_ns), 0, 0
    FROM busy
    GROUP BY run_number
), run_names AS (
    SELECT DISTINCT run_number, run_id
    FROM large_flows
)
SELECT run_id, window_ns, start_ns, end_ns, end_ns - start_ns AS idle_ns,
       payload_before_bytes::BIGINT AS payload_before_bytes, mix / 1000 AS mix_bytes
FROM pauses
JOIN run_names USING (run_number)
ORDER BY run_id, payload_before_bytes
