-- question: When in the communication of a step does each pair of hosts send?
-- row: a run and a directed pair of hosts with payload in its first steps
-- inputs: hosts, flows, flow_windows, steps
-- The first 20 steps of one worker's log (of the lowest rank) are looked at, in base windows with payload. A step's
-- communication begins after the longest pause of the whole run in the step: what is still on its way when the worker
-- logs the step's end belongs to the step before; a window with less than a twentieth of the busiest one is a pause,
-- too. A pair sends from its first window with at least a tenth of its busiest one to its last such window.
-- first_after_ms and last_after_ms are mean times from where communication begins.
WITH reference AS (
    SELECT s.run_id, step, start_ns, end_ns
    FROM steps AS s
    LEFT JOIN hosts AS h ON h.run_id = s.run_id AND h.label = s.worker
    WHERE step < 20
    QUALIFY dense_rank() OVER (PARTITION BY s.run_id ORDER BY rank NULLS LAST, worker) = 1
), span AS (
    SELECT run_id, min(start_ns) AS begin_ns, max(end_ns) AS end_ns
    FROM reference
    GROUP BY run_id
), sent AS (
    SELECT run_id, flow_id, window_start_ns, window_ns, w.payload_bytes
    FROM flow_windows AS w
    JOIN span USING (run_id)
    WHERE w.payload_bytes > 0 AND window_start_ns BETWEEN begin_ns AND end_ns
), pair_windows AS (
    SELECT run_id, src_ip, dst_ip, window_start_ns, window_ns, sum(sent.payload_bytes)::DOUBLE AS bytes
    FROM sent
    JOIN flows USING (run_id, flow_id)
    GROUP BY ALL
), busy AS (
    SELECT run_id, window_start_ns
    FROM pair_windows
    GROUP BY run_id, window_start_ns
    QUALIFY sum(bytes) >= 0.05 * max(sum(bytes)) OVER (PARTITION BY run_id)
), pauses AS (
    SELECT run_id, window_start_ns AS until_ns,
           lag(window_start_ns) OVER (PARTITION BY run_id ORDER BY window_start_ns) AS since_ns
    FROM busy
), communication AS (
    SELECT r.run_id, r.step, max_by(until_ns, until_ns - since_ns) AS begin_ns
    FROM reference AS r
    JOIN pauses AS p ON p.run_id = r.run_id AND p.until_ns > r.start_ns AND p.until_ns <= r.end_ns
    WHERE since_ns IS NOT NULL
    GROUP BY r.run_id, r.step
), weighed AS (
    SELECT *, max(bytes) OVER (PARTITION BY run_id, src_ip, dst_ip) AS most_bytes
    FROM pair_windows
), spells AS (
    SELECT w.run_id, src_ip, dst_ip, c.step, min(window_start_ns - begin_ns) AS first_ns,
           max(window_start_ns + window_ns - begin_ns) AS last_ns
    FROM weighed AS w
    ASOF JOIN communication AS c ON c.run_id = w.run_id AND c.begin_ns <= w.window_start_ns
    WHERE bytes >= 0.1 * most_bytes
    GROUP BY ALL
)
SELECT run_id, src_ip, dst_ip, avg(first_ns) / 1e6 AS first_after_ms, avg(last_ns) / 1e6 AS last_after_ms
FROM spells
GROUP BY run_id, src_ip, dst_ip
ORDER BY run_id, src_ip, dst_ip
