-- question: When does the training traffic of a run, or of each pair of hosts, pause, and how much was sent until then?
-- subject: throughput
-- row: a run (by_pair: and a directed pair of hosts) and a pause: base windows without payload between two with payload; the first is before all traffic, the last after it
-- inputs: flow_windows, training_flows
-- param: by_pair BIGINT = 0; 1: of each directed pair of hosts; 0: of all pairs together; 2: both
-- column: run_id
-- column: pair; number of the directed pair of hosts in the run, as in training_flows; null where all pairs are together
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
WITH units AS MATERIALIZED (  -- a row for each pair of a unit
    SELECT *, dense_rank() OVER (ORDER BY run_number, own_pair) AS unit
    FROM (SELECT DISTINCT run_id, run_number, pair, weight,
                 unnest(CASE $by_pair WHEN 0 THEN [NULL] WHEN 1 THEN [pair] ELSE [NULL, pair] END) AS own_pair
          FROM training_flows)
), training AS (
    SELECT run_number, pair, window_start_ns // (60 * window_ns) AS stretch, window_start_ns, window_ns, payload_bytes,
           1::BIGINT << (window_start_ns // window_ns % 60) AS bit
    FROM flow_windows
    JOIN training_flows USING (run_id, flow_id)
    WHERE payload_bytes > 0 AND (packets IS NULL OR payload_bytes >= packets * least_mean_bytes)
), pair_stretches AS (  -- of 60 base windows, a bit for each
    SELECT run_number, pair, stretch, max(window_ns) AS window_ns, min(window_start_ns) AS start_ns,
           max(window_start_ns + window_ns) AS end_ns, sum(payload_bytes)::BIGINT AS payload_bytes, bit_or(bit) AS bits
    FROM training
    GROUP BY run_number, pair, stretch
), stretches AS MATERIALIZED (
    SELECT unit, stretch, max(window_ns) AS window_ns, min(start_ns) AS start_ns, max(end_ns) AS end_ns,
           sum(payload_bytes)::BIGINT AS payload_bytes, sum(payload_bytes * weight)::BIGINT AS mix,
           bit_or(bits) AS busy, busy & ~(busy << 1) AS first_bits
    FROM pair_stretches
    JOIN units USING (run_number, pair)
    GROUP BY unit, stretch
), broken_stretches AS (
    SELECT run_number, pair, weight, unit, stretch, first_bits
    FROM stretches
    JOIN units USING (unit)
    WHERE bit_count(first_bits) > 1
), islands AS MATERIALIZED (  -- windows without a pause between them; they are read again only where a stretch has several
    SELECT unit, window_ns, start_ns, end_ns, payload_bytes, mix
    FROM stretches
    WHERE bit_count(first_bits) = 1
    UNION ALL
    SELECT unit, max(window_ns), min(window_start_ns), max(window_start_ns + window_ns),
           sum(payload_bytes)::BIGINT, sum(payload_bytes * weight)::BIGINT
    FROM training
    JOIN broken_stretches USING (run_number, pair, stretch)
    GROUP BY unit, stretch, bit_count(first_bits & (2 * bit - 1))
), added AS (
    SELECT unit, window_ns, end_ns,
           lead(start_ns) OVER in_time AS next_start_ns,
           sum(payload_bytes) OVER (in_time ROWS UNBOUNDED PRECEDING) AS payload_before_bytes,
           sum(mix) OVER (in_time ROWS UNBOUNDED PRECEDING) AS mix
    FROM islands
    WINDOW in_time AS (PARTITION BY unit ORDER BY start_ns)
), pauses AS (
    SELECT unit, window_ns, end_ns AS start_ns, next_start_ns AS end_ns, payload_before_bytes, mix
    FROM added
    WHERE next_start_ns IS NULL OR next_start_ns > end_ns
    UNION ALL
    SELECT unit, any_value(window_ns), NULL, min(start_ns), 0, 0
    FROM islands
    GROUP BY unit
)
SELECT run_id, own_pair AS pair, unit, window_ns, start_ns, end_ns, end_ns - start_ns AS idle_ns,
       payload_before_bytes::BIGINT AS payload_before_bytes, mix / 1000 AS mix_bytes
FROM pauses
JOIN (SELECT DISTINCT unit, run_id, own_pair FROM units) USING (unit)
ORDER BY unit, payload_before_bytes
