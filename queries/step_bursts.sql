-- question: When does each pair of hosts send in each step that the traffic shows?
-- subject: throughput
-- row: a run, a way to find its steps, a step and a directed pair of hosts; where only pairs show steps and do not agree, or show rounds of a step, a row with step null for each pair
-- inputs: paused_steps, flows, flow_windows, training_flows
-- param: longest_step_s DOUBLE > 0 = 20; as in inferred_steps
-- column: run_id from flows
-- column: found_by; run: by pauses of all traffic at once; pairs: by those of each pair
-- column: step; number of the step, from 0; null where pairs do not agree on the steps, and as all times below
-- column: src_ip
-- column: dst_ip
-- column: window_ns ns; length of a base window: the resolution of the times
-- column: start_ns ns since the epoch, UTC; start of the pair's burst: by run, of the window in which it has sent 2% of its payload of the step
-- column: end_ns ns since the epoch, UTC; end of the pair's burst: by run, of the window in which it has sent 98%
-- column: step_start_ns ns since the epoch, UTC; start of the step, of all pairs; by pairs, not before the end of the step before
-- column: step_end_ns ns since the epoch, UTC; end of the step, of all pairs
-- column: pause_before_ms ms; length of the pause before the step; 0 where pairs begin it before others have ended the one before; null where the traffic begins with it
-- column: payload_bytes bytes; payload of the training traffic of all pairs in the step
-- column: confidence share; confidence in the steps of the run, the same for all of them
-- column: pair_steps steps; how many steps the pair's own pauses show; null where found by the run's
-- column: pair_step_bytes bytes; payload of the pair in one of these, median
-- column: all_pairs pairs; directed pairs of hosts with training traffic in the run
-- Where workers begin a step at times of their own, as in a clique, the run as a whole is hardly ever silent, but each
-- pair is, from its last byte of a step to its first of the next. So where the pauses of the run show no steps, those of
-- its pairs do: steps of the pairs are those of the run where nearly all pairs have as many. They are counted from the
-- last, since start-up is at the beginning. A step ends when the last pair has sent its part.
-- Pairs also pause between the rounds inside a step (a ring of large messages). Where pauses of twice the length of all
-- others come every so many steps of the pairs, or a ring of N has a multiple of its 2(N - 1) rounds, these are no steps.
WITH thresholds AS (
    SELECT 0.9 AS least_share,     -- of the training traffic: that of the pairs that have as many steps, within one,
           3 AS least_steps,
           0.02 AS edge_share,     -- of a pair's payload of a step: what may be left of the step before, or sent again
           2 AS longer_pause,      -- between steps than between the rounds of a step, where steps are rounds
           64 AS most_rounds,
           0.9 AS least_pairs      -- of the pairs with steps: those that a step has
), pairs AS MATERIALIZED (
    SELECT run_id, pair, src_ip, dst_ip, sum(payload_bytes) AS payload_bytes
    FROM flows
    JOIN training_flows USING (run_id, flow_id)
    GROUP BY ALL
), found AS MATERIALIZED (
    FROM paused_steps(longest_step_s := $longest_step_s, by_pair := 2)
), of_run AS (
    SELECT * EXCLUDE (pair)
    FROM found
    WHERE pair IS NULL
), of_pairs AS (
    FROM found
    WHERE pair IS NOT NULL
), lengths AS MATERIALIZED (
    SELECT run_id, max(window_ns) AS window_ns
    FROM flow_windows
    GROUP BY run_id
), step_cells AS MATERIALIZED (  -- of 20 base windows, each with few steps
    SELECT run_number, step, start_ns, end_ns,
           unnest(range(start_ns // (20 * window_ns), end_ns // (20 * window_ns) + 1)) AS cell
    FROM of_run
    JOIN lengths USING (run_id)
    JOIN (SELECT DISTINCT run_id, run_number FROM training_flows) USING (run_id)
), windows AS NOT MATERIALIZED (
    SELECT run_number, pair, window_start_ns // (20 * window_ns) AS cell, window_start_ns,
           window_start_ns + window_ns AS sent_ns, payload_bytes
    FROM flow_windows
    JOIN training_flows USING (run_id, flow_id)
    WHERE payload_bytes > 0 AND (packets IS NULL OR payload_bytes >= packets * least_mean_bytes)
), cell_sums AS (
    SELECT run_number, pair, step, cell, sum(payload_bytes) AS payload_bytes
    FROM windows
    JOIN step_cells USING (run_number, cell)
    WHERE window_start_ns >= start_ns AND window_start_ns < end_ns
    GROUP BY ALL
), edge_cells AS MATERIALIZED (  -- in which a pair's burst begins or ends: window by window only there
    SELECT *
    FROM (SELECT *, sum(payload_bytes) OVER (of_burst ORDER BY cell) AS sent_bytes,
                 sum(payload_bytes) OVER of_burst AS all_bytes
          FROM cell_sums
          WINDOW of_burst AS (PARTITION BY run_number, step, pair))
    CROSS JOIN thresholds
    WHERE sent_bytes > edge_share * all_bytes AND sent_bytes - payload_bytes <= edge_share * all_bytes
       OR sent_bytes >= (1 - edge_share) * all_bytes AND sent_bytes - payload_bytes < (1 - edge_share) * all_bytes
), edge_lists AS (  -- a row a run, so that DuckDB builds its join on this side and not on the windows
    SELECT run_number, list({'step': step, 'pair': pair, 'cell': cell, 'before_bytes': sent_bytes - payload_bytes,
                             'all_bytes': all_bytes, 'start_ns': start_ns, 'end_ns': end_ns}) AS edges
    FROM edge_cells
    JOIN step_cells USING (run_number, step, cell)
    GROUP BY run_number
), listed AS MATERIALIZED (
    SELECT run_number, unnest(edges, recursive := true)
    FROM edge_lists
), sent AS (
    SELECT run_number, step, pair, window_start_ns, sent_ns, all_bytes,
           before_bytes + sum(payload_bytes) OVER (PARTITION BY run_number, step, pair, cell ORDER BY window_start_ns) AS sent_bytes
    FROM windows
    JOIN listed USING (run_number, pair, cell)
    WHERE window_start_ns >= start_ns AND window_start_ns < end_ns
), bursts_of_run AS (
    SELECT run_id, step, pair, min(window_start_ns) FILTER (sent_bytes > edge_share * all_bytes) AS start_ns,
           min(sent_ns) FILTER (sent_bytes >= (1 - edge_share) * all_bytes) AS end_ns
    FROM sent
    CROSS JOIN thresholds
    JOIN (SELECT DISTINCT run_id, run_number FROM training_flows) USING (run_number)
    GROUP BY run_id, step, pair
), counted AS (
    SELECT run_id, pair, max(steps_after) + 1 AS steps, any_value(confidence) AS confidence, median(payload_bytes) AS step_bytes
    FROM of_pairs
    GROUP BY run_id, pair
), usual AS (
    SELECT run_id, quantile_disc(steps, 0.5) AS steps
    FROM counted
    GROUP BY run_id
), agreeing AS (
    SELECT run_id, pair, u.steps, confidence
    FROM counted AS c
    JOIN usual AS u USING (run_id)
    WHERE abs(c.steps - u.steps) <= 1
), trusted AS (
    SELECT run_id, any_value(steps) AS steps, avg(confidence) AS confidence, count(*) AS pairs
    FROM agreeing
    JOIN pairs USING (run_id, pair)
    JOIN (SELECT run_id, sum(payload_bytes) AS run_bytes FROM pairs GROUP BY run_id) USING (run_id)
    CROSS JOIN thresholds
    GROUP BY run_id
    HAVING sum(payload_bytes) >= any_value(least_share * run_bytes) AND any_value(steps) >= any_value(least_steps)
), numbered AS MATERIALIZED (
    SELECT run_id, t.steps - 1 - steps_after AS step, pair, start_ns, end_ns, payload_bytes, pause_before_ms, t.confidence, pairs
    FROM of_pairs
    JOIN trusted AS t USING (run_id)
    SEMI JOIN agreeing USING (run_id, pair)
    WHERE steps_after < t.steps
), ends AS (
    SELECT run_id, step, min(start_ns) AS start_ns, max(end_ns) AS end_ns, sum(payload_bytes) AS payload_bytes,
           median(pause_before_ms) AS own_pause_ms, any_value(confidence) AS confidence
    FROM numbered
    CROSS JOIN thresholds
    GROUP BY run_id, step
    HAVING count(*) >= any_value(least_pairs * pairs)
), steps_of_pairs AS MATERIALIZED (
    SELECT run_id, step, payload_bytes, confidence, end_ns AS step_end_ns, own_pause_ms,
           greatest(start_ns, coalesce(max(end_ns) OVER earlier, start_ns)) AS step_start_ns,
           (step_start_ns - max(end_ns) OVER earlier) / 1e6 AS pause_before_ms
    FROM ends
    WINDOW earlier AS (PARTITION BY run_id ORDER BY step ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
), ranked AS (
    SELECT run_id, step, own_pause_ms, count(*) OVER (PARTITION BY run_id) AS pauses,
           row_number() OVER (PARTITION BY run_id ORDER BY own_pause_ms DESC, step) AS place
    FROM steps_of_pairs
    WHERE own_pause_ms IS NOT NULL
), periodic AS (  -- the longest pauses come every so many steps of the pairs
    SELECT run_id
    FROM ranked
    CROSS JOIN thresholds
    CROSS JOIN range(2, 65) AS sizes(size)
    WHERE size <= most_rounds AND pauses // size >= least_steps
    GROUP BY run_id, size
    HAVING count(DISTINCT step % size) FILTER (place <= pauses // size) = 1
       AND min(own_pause_ms) FILTER (place <= pauses // size)
           >= any_value(longer_pause) * max(own_pause_ms) FILTER (place > pauses // size)
), rings AS (
    SELECT run_id, count(*) AS hosts
    FROM pairs
    GROUP BY run_id
    HAVING count(DISTINCT src_ip) = count(*) AND count(DISTINCT dst_ip) = count(*) AND count(*) > 2
), rounds AS (
    SELECT run_id FROM periodic
    UNION
    SELECT run_id
    FROM trusted
    JOIN rings USING (run_id)
    WHERE steps % (2 * (hosts - 1)) = 0
), bursts AS (
    SELECT b.run_id, 'run' AS found_by, step, pair, b.start_ns, b.end_ns, s.start_ns AS step_start_ns, s.end_ns AS step_end_ns,
           s.pause_before_ms, s.payload_bytes, confidence, NULL AS pair_steps, NULL AS pair_step_bytes
    FROM bursts_of_run AS b
    JOIN of_run AS s USING (run_id, step)
    UNION ALL
    SELECT n.run_id, 'pairs', n.step, pair, start_ns, end_ns, step_start_ns, step_end_ns,
           s.pause_before_ms, s.payload_bytes, s.confidence, c.steps, step_bytes
    FROM numbered AS n
    JOIN steps_of_pairs AS s USING (run_id, step)
    JOIN counted AS c USING (run_id, pair)
    ANTI JOIN rounds USING (run_id)
    UNION ALL
    SELECT run_id, 'pairs', NULL, pair, NULL, NULL, NULL, NULL, NULL, NULL, NULL, steps, step_bytes
    FROM counted
    ANTI JOIN (FROM trusted ANTI JOIN rounds USING (run_id)) USING (run_id)
)
SELECT run_id, found_by, step::BIGINT AS step, src_ip, dst_ip, window_ns, start_ns, end_ns, step_start_ns, step_end_ns, pause_before_ms,
       bursts.payload_bytes::BIGINT AS payload_bytes, confidence, pair_steps, pair_step_bytes::DOUBLE AS pair_step_bytes,
       all_pairs
FROM bursts
JOIN pairs USING (run_id, pair)
JOIN (SELECT run_id, count(*) AS all_pairs FROM pairs GROUP BY run_id) USING (run_id)
JOIN lengths USING (run_id)
ORDER BY run_id, found_by, step, src_ip, dst_ip
