-- question: How long do the iterations of a run take?
-- subject: steps
-- row: a run and a duration that one of its iterations had
-- inputs: steps
-- param: points BIGINT > 0 = NULL; at most this many rows per run (2 or more), evenly over the iterations; NULL: every duration
-- figure: farhat fig. 4
-- column: run_id
-- column: duration_ms ms; duration of an iteration
-- column: iterations iterations; iterations of exactly this duration
-- column: cumulative_share share; part of the run's iterations that take this long or less
-- The iterations of all workers are one distribution: each worker's step counts once. A log's first step whose start is
-- only estimated is left out, because its duration is estimated from the others.
WITH durations AS (
    SELECT run_id, end_ns - start_ns AS duration_ns, count(*) AS iterations
    FROM steps
    WHERE start_source IS DISTINCT FROM 'estimated'
    GROUP BY ALL
), summed AS (
    SELECT *, sum(iterations) OVER (PARTITION BY run_id ORDER BY duration_ns) AS so_far,
           sum(iterations) OVER (PARTITION BY run_id) AS total,
           min(duration_ns) OVER (PARTITION BY run_id) AS least_ns,
           greatest($points, 2) - 1 AS intervals
    FROM durations
)
SELECT run_id, duration_ns / 1e6 AS duration_ms, iterations, so_far / total AS cumulative_share
FROM summed
WHERE $points IS NULL OR duration_ns = least_ns
   OR so_far * intervals // total > (so_far - iterations) * intervals // total
ORDER BY run_id, duration_ms
