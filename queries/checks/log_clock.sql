-- question: Which training logs are on another clock than the captures?
-- row: a run, or a worker's log in a run, and the evidence against its clock
-- inputs: runs, steps, step_flows
-- column: run_id from steps
-- column: worker; label of the worker; null where the run is meant
-- column: problem; the evidence
-- column: off_by_ms ms; estimated shift that is missing, or the gap to the nearest other worker's steps; null where neither is known
-- The estimate of runs.clock_offset_estimate_ns errs by up to 8 ms with windows of 1 ms, and by 17 ms with 20 ms
-- (docs/clocks.md): 20 ms are beyond it. `ingest --clock-offset auto` applies the estimate.
WITH thresholds AS (
    SELECT 20 AS tolerance_ms,           -- beyond the error of the estimate (docs/clocks.md)
           0.01 AS least_share_in_steps  -- of the packets: with less the log is of another time
), in_steps AS (
    SELECT run_id, sum(packets) AS packets, coalesce(sum(packets) FILTER (position = 'during'), 0) AS packets_in_steps
    FROM step_flows
    GROUP BY run_id
), worker_spans AS (
    SELECT run_id, worker, min(start_ns) AS begin_ns, max(end_ns) AS end_ns
    FROM steps
    GROUP BY run_id, worker
), problems AS (
    SELECT run_id, NULL AS worker, 'the log would have to be shifted by more than 20 ms to fit the traffic' AS problem,
           (clock_offset_estimate_ns - coalesce(clock_offset_ns, 0)) / 1e6 AS off_by_ms
    FROM runs
    CROSS JOIN thresholds
    WHERE abs(off_by_ms) > tolerance_ms
    UNION ALL
    SELECT run_id, NULL, 'there is a log, but less than 1% of the packets are in its steps', NULL
    FROM in_steps
    CROSS JOIN thresholds
    WHERE packets_in_steps < least_share_in_steps * packets
    UNION ALL
    SELECT w.run_id, w.worker, 'the worker''s steps share no time with those of any other worker',
           min(greatest(w.begin_ns - o.end_ns, o.begin_ns - w.end_ns)) / 1e6
    FROM worker_spans AS w
    JOIN worker_spans AS o ON o.run_id = w.run_id AND o.worker <> w.worker
    GROUP BY w.run_id, w.worker
    HAVING bool_and(w.begin_ns > o.end_ns OR w.end_ns < o.begin_ns)
)
SELECT run_id, worker, problem, off_by_ms
FROM problems
ORDER BY run_id, worker, problem
