-- question: Are the steps inferred from the traffic those of the training logs?
-- subject: steps
-- row: a run
-- inputs: runs, steps, program_events, inferred_steps, step_synchrony, unknown_payload
-- answer: recall, precision
-- param: tolerance_ms DOUBLE = 5; greatest distance of an inferred boundary from the log's, ms
-- param: longest_step_s DOUBLE > 0 = 20; as in inferred_steps
-- column: run_id from steps
-- column: is_asynchronous; whether the logs show that workers do not wait for each other (step_synchrony); null where they cannot
-- column: structured; whether steps were inferred
-- column: confidence share; confidence of inferred_steps; null where structured is false
-- column: in_log boundaries; boundaries in the logs: instants at which steps end, of which a coordinator's log has fewer than steps
-- column: inferred boundaries; boundaries inferred from the traffic
-- column: matched boundaries; boundaries in the logs that an inferred one matches; null without a log, and as all below in an asynchronous run
-- column: recall share; matched over in_log
-- column: precision share; matched over inferred
-- column: chance_recall share; recall of as many boundaries at random times of the logged training
-- column: chance_precision share; their precision: part of that time in which a boundary would match
-- column: corrected_recall share; recall - chance_recall over 1 - chance_recall: 1 all found, 0 no better than chance, below 0 worse
-- column: corrected_precision share; the same of the precision
-- column: step_ms ms; step time: median time between boundaries in the logs
-- column: median_error_share share; timeline error, the time between a boundary in the logs and the nearest inferred one over step_ms: median
-- column: p95_error_share share; its 95th percentile
-- column: median_duration_error_share share; error of a step's duration, from one of these boundaries to the next, over step_ms: median
-- column: p95_duration_error_share share; its 95th percentile
-- column: first_worker_recall share; part of in_log with an inferred boundary within the tolerance of the first worker's time stamp
-- column: median_delay_ms ms; from the inferred boundary to the last worker's time stamp, median of the matches
-- column: evidence; that of inferred_steps, and how many steps of the logs end at how many instants, where these are fewer
-- A boundary in the logs is an interval, because the workers end a step at different times: from the first worker's end
-- of communication (start of its update, where events give it; else its log's time stamp) to the last worker's time
-- stamp. Steps with one time stamp are one boundary: those that a coordinator hands out together wait for the last of
-- them. An inferred boundary, end_ns of inferred_steps, matches the
-- nearest interval that contains it or is within the tolerance; each matches once. Wide intervals match by chance: the
-- corrected shares are Cohen's kappa against boundaries at random times from the first logged start to the last end.
-- Errors are against the last worker's time stamp and count every boundary in the logs, matched or not. LLMPrism (arXiv
-- 2505.00342) states an error within 0.3% for its timelines of large language models, whose steps last seconds; a log
-- here also counts the update after the last data, which is a part of a step of 100 ms that is no error of the duration.
-- Asynchronous workers end a step at times of their own, so that a run has no boundaries to compare with.
-- The first worker by name of a tree or star is often the root, whose step ends when its last data is in the socket's
-- buffer, some 20 ms before it is on the wire.
WITH updates AS (
    SELECT run_id, worker, step, min(start_ns) AS update_ns
    FROM program_events
    WHERE kind = 'update'
    GROUP BY ALL
), log_steps AS (
    SELECT run_id, step, min(start_ns) AS start_ns, min(least(update_ns, end_ns)) AS first_ns, max(end_ns) AS last_ns,
           min(end_ns) FILTER (is_first) AS first_worker_ns
    FROM (SELECT *, worker = min(worker) OVER (PARTITION BY run_id) AS is_first FROM steps)
    LEFT JOIN updates USING (run_id, worker, step)
    GROUP BY run_id, step
), log_boundaries AS (
    SELECT run_id, last_ns, max(first_ns) AS first_ns, min(first_worker_ns) AS first_worker_ns, min(start_ns) AS start_ns,
           last_ns - lag(last_ns) OVER (PARTITION BY run_id ORDER BY last_ns) AS step_ns, count(*) AS ended
    FROM log_steps
    GROUP BY run_id, last_ns
), inferred AS MATERIALIZED (
    SELECT run_id, end_ns, structured, confidence, evidence
    FROM inferred_steps(longest_step_s := $longest_step_s)
), near AS (
    SELECT run_id, last_ns, end_ns, first_worker_ns,
           greatest(first_ns - end_ns, end_ns - last_ns, 0) AS distance_ns
    FROM log_boundaries AS l
    JOIN inferred AS i USING (run_id)
    WHERE i.end_ns BETWEEN l.first_ns - $tolerance_ms * 1e6 AND l.last_ns + $tolerance_ms * 1e6
), nearest AS (
    SELECT *
    FROM near
    QUALIFY row_number() OVER (PARTITION BY run_id, last_ns ORDER BY distance_ns, last_ns - end_ns, end_ns) = 1
), matched AS (
    SELECT *
    FROM nearest
    QUALIFY row_number() OVER (PARTITION BY run_id, end_ns ORDER BY distance_ns, last_ns) = 1
), matches AS (
    SELECT run_id, count(*) AS matched, median(last_ns - end_ns) / 1e6 AS median_delay_ms
    FROM matched
    GROUP BY run_id
), at_first_worker AS (
    SELECT run_id, count(DISTINCT l.last_ns) AS boundaries
    FROM log_boundaries AS l
    JOIN inferred AS i USING (run_id)
    WHERE i.end_ns BETWEEN first_worker_ns - $tolerance_ms * 1e6 AND first_worker_ns + $tolerance_ms * 1e6
    GROUP BY run_id
), in_logs AS (
    SELECT run_id, count(*) AS boundaries, sum(ended) AS steps, min(start_ns) AS begin_ns, max(last_ns) - begin_ns AS length_ns,
           median(step_ns) AS step_ns
    FROM log_boundaries
    GROUP BY run_id
), in_traffic AS (
    SELECT run_id, any_value(structured) AS structured, count(end_ns) AS boundaries, any_value(confidence) AS confidence,
           any_value(evidence) AS evidence
    FROM inferred
    GROUP BY run_id
), intervals AS (  -- where a boundary matches, within the logged training
    SELECT run_id, length_ns, greatest(first_ns - $tolerance_ms * 1e6, begin_ns) AS low_ns,
           least(last_ns + $tolerance_ms * 1e6, begin_ns + length_ns) AS high_ns
    FROM log_boundaries
    JOIN in_logs USING (run_id)
), uncovered AS (  -- without what the intervals before cover
    SELECT run_id, length_ns, low_ns, high_ns,
           greatest(low_ns, max(high_ns) OVER (PARTITION BY run_id ORDER BY low_ns, high_ns
                                               ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)) AS from_ns
    FROM intervals
), chances AS (
    SELECT run_id, sum(greatest(high_ns - from_ns, 0)) / nullif(any_value(length_ns), 0) AS precision,
           avg(1 - pow(1 - (high_ns - low_ns) / nullif(length_ns, 0), t.boundaries)) AS recall
    FROM uncovered
    JOIN in_traffic AS t USING (run_id)
    GROUP BY run_id
), in_time AS (
    SELECT run_id, last_ns AS time_ns, last_ns, NULL AS end_ns FROM log_boundaries
    UNION ALL
    SELECT run_id, end_ns, NULL, end_ns FROM inferred WHERE end_ns IS NOT NULL
), between_ends AS (
    SELECT run_id, last_ns, max(end_ns) OVER (PARTITION BY run_id ORDER BY time_ns) AS before_ns,
           min(end_ns) OVER (PARTITION BY run_id ORDER BY time_ns DESC) AS after_ns
    FROM in_time
), errors AS (
    SELECT run_id, last_ns,
           CASE WHEN before_ns IS NULL OR after_ns - last_ns < last_ns - before_ns THEN after_ns ELSE before_ns END AS end_ns,
           end_ns - last_ns AS error_ns,
           error_ns - lag(error_ns) OVER (PARTITION BY run_id ORDER BY last_ns) AS duration_error_ns
    FROM between_ends
    WHERE last_ns IS NOT NULL
), error_shares AS (
    SELECT run_id, median(abs(error_ns)) / any_value(step_ns) AS median_error,
           quantile_cont(abs(error_ns), 0.95) / any_value(step_ns) AS p95_error,
           median(abs(duration_error_ns)) / any_value(step_ns) AS median_duration_error,
           quantile_cont(abs(duration_error_ns), 0.95) / any_value(step_ns) AS p95_duration_error
    FROM errors
    JOIN in_logs USING (run_id)
    GROUP BY run_id
), compared AS (  -- the runs whose logs have boundaries of all workers
    SELECT run_id, coalesce(m.matched, 0) AS matched, coalesce(m.matched, 0) / l.boundaries AS recall,
           coalesce(m.matched, 0) / nullif(t.boundaries, 0) AS precision,
           CASE WHEN t.boundaries > 0 THEN c.recall END AS chance_recall,
           CASE WHEN t.boundaries > 0 THEN c.precision END AS chance_precision,
           l.step_ns / 1e6 AS step_ms, e.* EXCLUDE run_id,
           coalesce(f.boundaries, 0) / l.boundaries AS first_worker_recall, median_delay_ms
    FROM in_logs AS l
    JOIN in_traffic AS t USING (run_id)
    LEFT JOIN chances AS c USING (run_id)
    LEFT JOIN matches AS m USING (run_id)
    LEFT JOIN at_first_worker AS f USING (run_id)
    LEFT JOIN error_shares AS e USING (run_id)
    WHERE run_id NOT IN (SELECT run_id FROM step_synchrony WHERE is_asynchronous) AND run_id NOT IN (SELECT run_id FROM unknown_payload)
)
SELECT run_id, is_asynchronous, structured, confidence,
       coalesce(l.boundaries, 0) AS in_log, t.boundaries AS inferred,
       matched, recall, precision, chance_recall, chance_precision,
       (recall - chance_recall) / nullif(1 - chance_recall, 0) AS corrected_recall,
       (precision - chance_precision) / nullif(1 - chance_precision, 0) AS corrected_precision,
       step_ms, median_error AS median_error_share, p95_error AS p95_error_share,
       median_duration_error AS median_duration_error_share, p95_duration_error AS p95_duration_error_share,
       first_worker_recall, median_delay_ms,
       evidence || CASE WHEN l.steps > l.boundaries THEN format('; the {} steps of the logs end at {} instants', l.steps::BIGINT, l.boundaries)
                        ELSE '' END AS evidence
FROM runs
LEFT JOIN step_synchrony USING (run_id)
LEFT JOIN in_traffic AS t USING (run_id)
LEFT JOIN in_logs AS l USING (run_id)
LEFT JOIN compared USING (run_id)
ORDER BY run_id
