-- question: Where do steps end, according to each worker's log and to the traffic?
-- subject: steps
-- row: a run, a source and the end of one of the run's first steps
-- inputs: steps, inferred_steps, figure_runs
-- param: runs BIGINT = NULL; only this many runs, in the order of figure_runs; NULL: all
-- param: boundaries BIGINT = 12; only the first this many of each source; NULL: all
-- column: run_id
-- column: source; traffic (inferred_steps), or the worker whose log it is
-- column: step; number of the step in this source, from 0
-- column: end_ns ns since the epoch, UTC; end of the step
-- column: since_start_ms ms; end of the step since the run's first boundary of any source
WITH sources AS (
    SELECT run_id, 'traffic' AS source, 0 AS place, step, end_ns
    FROM inferred_steps()
    WHERE structured
    UNION ALL
    SELECT run_id, worker, 1, step, end_ns
    FROM steps
)
SELECT run_id, source, sources.step::BIGINT AS step, end_ns,
       (end_ns - min(end_ns) OVER (PARTITION BY run_id)) / 1e6 AS since_start_ms
FROM sources
JOIN figure_runs AS f USING (run_id)
WHERE ($runs IS NULL OR f.place <= $runs) AND ($boundaries IS NULL OR sources.step < $boundaries)
ORDER BY run_id, sources.place, source, step
