-- question: When does the training traffic of a run, or of each pair of hosts, pause, and how much was sent until then?
-- subject: throughput
-- row: a run (by_pair: and a directed pair of hosts) and a pause: base windows without payload between two with payload; the first is before all traffic, the last after it
-- inputs: flow_windows, training_flows
-- param: by_pair BIGINT = 0; 1: of each directed pair of hosts; 0: of all pairs together
-- column: run_id
-- column: pair; number of the directed pair of hosts in the run, as in training_flows; null without by_pair
-- column: unit; number of the run, or of the run's pair, among all: what is examined as one
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
    SELECT *, CASE WHEN $by_pair > 0 THEN pair END AS own_pair, dense_rank() OVER (ORDER BY run_number, own_pair) AS unit
    FROM training_flows
), training AS (
    SELECT unit, weight, window_start_ns, window_ns, payload_bytes
    FROM flow_windows
    JOIN large_flows USING (run_id, flow_id)
    WHERE payload_bytes > 0 AND (packets IS NULL OR payload_bytes >= packets * least_mean_bytes)
), stretches AS MATERIALIZED (  -- of 60 base windows, a bit for each
    SELECT unit, window_start_ns // (60 * window_ns) AS stretch, max(window_ns) AS window_ns,
           min(window_start_ns) AS start_ns, max(window_start_ns + window_ns) AS end_ns,
           sum(payload_bytes)::BIGINT AS payload_bytes, sum(payload_bytes * weight)::BIGINT AS mix,
           bit_count(bit_or(1::BIGINT << (window_start_ns // window_ns % 60))) = 60 AS is_full
    FROM training
    GROUP BY unit, stretch
), partial_stretches AS (
    SELECT unit, stretch
    FROM stretches
    WHERE NOT is_full
), busy AS MATERIALIZED (  -- window by window only where a pause is near: to order all windows takes ten times as long
    SELECT unit, window_ns, start_ns, end_ns, payload_bytes, mix
    FROM stretches
    WHERE is_full
    UNION ALL
    SELECT unit, max(window_ns), window_start_ns, max(window_start_ns + window_ns),
           sum(payload_bytes)::BIGINT, sum(payload_bytes * weight)::BIGINT
    FROM (SELECT unit, window_start_ns // (60 * window_ns) AS stretch, window_ns, window_start_ns, payload_bytes, weight
          FROM training)
    JOIN partial_stretches USING (unit, stretch)
    GROUP BY unit, window_start_ns
), added AS (
    SELECT unit, window_ns, end_ns,
           lead(start_ns) OVER in_time AS next_start_ns,
           sum(payload_bytes) OVER (in_time ROWS UNBOUNDED PRECEDING) AS payload_before_bytes,
           sum(mix) OVER (in_time ROWS UNBOUNDED PRECEDING) AS mix
    FROM busy
    WINDOW in_time AS (PARTITION BY unit ORDER BY start_ns)
), pauses AS (
    SELECT unit, window_ns, end_ns AS start_ns, next_start_ns AS end_ns, payload_before_bytes, mix
    FROM added
    WHERE next_start_ns IS NULL OR next_start_ns > end_ns
    UNION ALL
    SELECT unit, any_value(window_ns), NULL, min(start_ns), 0, 0
    FROM busy
    GROUP BY unit
), run_names AS (
    SELECT DISTINCT unit, run_id, own_pair
    FROM large_flows
)
SELECT run_id, own_pair AS pair, unit, window_ns, start_ns, end_ns, end_ns - start_ns AS idle_ns,
       payload_before_bytes::BIGINT AS payload_before_bytes, mix / 1000 AS mix_bytes
FROM pauses
JOIN run_names USING (unit)
ORDER BY unit, payload_before_bytes
