-- question: Are the steps inferred from the traffic those of the training logs?
-- row: a run
-- inputs: runs, steps, events, inferred_steps
-- param: tolerance_ms DOUBLE = 5; greatest distance of an inferred boundary from the log's, ms
-- param: longest_step_s DOUBLE > 0 = 20; as in inferred_steps
-- column: run_id; run
-- column: structured; whether steps were inferred
-- column: confidence share; confidence of inferred_steps; null where structured is false
-- column: in_log boundaries; boundaries in the logs
-- column: inferred boundaries; boundaries inferred from the traffic
-- column: matched boundaries; boundaries in the logs that an inferred one matches; null without a log
-- column: recall share; matched over in_log
-- column: precision share; matched over inferred
-- column: first_worker_recall share; part of in_log with an inferred boundary within the tolerance of the first worker's time stamp
-- column: median_delay_ms ms; from the inferred boundary to the last worker's time stamp, median of the matches
-- A boundary in the logs is an interval, because the workers end a step at different times: from the first worker's end
-- of communication (begin of its update, where events give it; else its log's time stamp) to the last worker's time
-- stamp. Steps with one time stamp are one boundary. An inferred boundary, end_ns of inferred_steps, matches the
-- nearest interval that contains it or is within the tolerance; each matches once. The first worker by name of a tree
-- or star is often the root, whose step ends when its last data is in the socket's buffer, some 20 ms before it is on
-- the wire.
WITH updates AS (
    SELECT run_id, worker, step, min(start_ns) AS update_ns
    FROM events
    WHERE kind = 'update'
    GROUP BY ALL
), log_steps AS (
    SELECT run_id, step, min(least(update_ns, end_ns)) AS first_ns, max(end_ns) AS last_ns,
           min(end_ns) FILTER (is_first) AS first_worker_ns
    FROM (SELECT *, worker = min(worker) OVER (PARTITION BY run_id) AS is_first FROM steps)
    LEFT JOIN updates USING (run_id, worker, step)
    GROUP BY run_id, step
), log_boundaries AS (
    SELECT run_id, last_ns, max(first_ns) AS first_ns, min(first_worker_ns) AS first_worker_ns
    FROM log_steps
    GROUP BY run_id, last_ns
), inferred AS MATERIALIZED (
    SELECT run_id, end_ns, structured, confidence
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
    SELECT run_id, count(*) AS boundaries
    FROM log_boundaries
    GROUP BY run_id
), in_traffic AS (
    SELECT run_id, any_value(structured) AS structured, count(end_ns) AS boundaries, any_value(confidence) AS confidence
    FROM inferred
    GROUP BY run_id
)
SELECT run_id, structured, confidence,
       coalesce(l.boundaries, 0) AS in_log, t.boundaries AS inferred,
       CASE WHEN l.boundaries > 0 THEN coalesce(matched, 0) END AS matched,
       coalesce(matched, 0) / l.boundaries AS recall,
       CASE WHEN l.boundaries > 0 THEN coalesce(matched, 0) / nullif(t.boundaries, 0) END AS precision,
       coalesce(f.boundaries, 0) / l.boundaries AS first_worker_recall,
       median_delay_ms
FROM runs
LEFT JOIN in_traffic AS t USING (run_id)
LEFT JOIN in_logs AS l USING (run_id)
LEFT JOIN matches USING (run_id)
LEFT JOIN at_first_worker AS f USING (run_id)
ORDER BY run_id
