-- question: How many transfers does an iteration of a parameter-server run make and how much do they carry, compared with n*w and 2*m*w?
-- subject: servers
-- row: a run with a parameter server and a phase: aggregation, distribution, both; one row with a problem where they cannot be separated
-- inputs: runs, parameter_server_runs, parameter_server_phases
-- figure: chang section 2 (transfers, throughput) and fig. 2
-- answer: phase, payload_ratio, mean_ms, problem
-- column: run_id from parameter_server_runs
-- column: phase; aggregation, distribution or both
-- column: place; 1 aggregation, 2 distribution, 3 both
-- column: problem
-- column: servers hosts; n, number of parameter servers
-- column: workers hosts; w, number of workers
-- column: model_size_bytes bytes; m: model_bytes, else the nominal size
-- column: steps steps; steps of the run
-- column: transfers transfers; mean per iteration
-- column: expected_transfers transfers; n*w per phase
-- column: transfers_ratio ratio; transfers over expected_transfers
-- column: payload_bytes bytes; mean payload per iteration
-- column: wire_bytes bytes; mean wire bytes per iteration
-- column: expected_bytes bytes; m*w per phase
-- column: payload_ratio ratio; payload_bytes over expected_bytes
-- column: mean_ms ms; mean duration of the phase; of both: time in which either lasts
-- column: mean_overlap_ms ms; mean time for which both phases last
-- column: mean_remaining_ms ms; mean time still to send when the phase's computation has ended, over remaining_steps; null for both
-- column: remaining_steps steps; steps in which that time is known
-- column: measured_by; how it is known: events, wire, estimate or mixed (parameter_server_phases: all but events are upper limits); null for both
-- A transfer, and the times, are those of parameter_server_phases. Means are over the run's steps.
WITH models AS (
    SELECT run_id, coalesce(model_bytes::DOUBLE, model_size_mb * 1e6) AS model_size_bytes
    FROM runs
), server_runs AS (
    FROM parameter_server_runs
), server_phases AS (
    FROM parameter_server_phases
), phase_steps AS (
    SELECT run_id, step, 'aggregation' AS phase, aggregation_transfers AS transfers,
           aggregation_payload_bytes AS payload, aggregation_wire_bytes AS wire, aggregation_ms AS ms, overlap_ms,
           aggregation_remaining_ms AS remaining_ms, aggregation_measured_by AS measured_by
    FROM server_phases
    UNION ALL
    SELECT run_id, step, 'distribution', distribution_transfers, distribution_payload_bytes, distribution_wire_bytes,
           distribution_ms, overlap_ms, distribution_remaining_ms, distribution_measured_by
    FROM server_phases
    UNION ALL
    SELECT run_id, step, 'both', coalesce(aggregation_transfers, 0) + coalesce(distribution_transfers, 0),
           coalesce(aggregation_payload_bytes, 0) + coalesce(distribution_payload_bytes, 0),
           coalesce(aggregation_wire_bytes, 0) + coalesce(distribution_wire_bytes, 0),
           aggregation_ms + distribution_ms - overlap_ms, overlap_ms, NULL, NULL
    FROM server_phases
), sums AS (
    SELECT run_id, phase, count(*) AS steps, sum(transfers) AS transfers, sum(payload) AS payload, sum(wire) AS wire,
           avg(ms) AS mean_ms, avg(overlap_ms) AS mean_overlap_ms,
           avg(remaining_ms) AS mean_remaining_ms, count(remaining_ms) AS remaining_steps,
           CASE WHEN count(DISTINCT measured_by) > 1 THEN 'mixed' ELSE min(measured_by) END AS measured_by
    FROM phase_steps
    GROUP BY ALL
), wanted AS (
    SELECT run_id, servers, workers, problem, unnest(['aggregation', 'distribution', 'both']) AS phase,
           unnest([1, 2, 3]) AS place, unnest([1, 1, 2]) AS phases
    FROM server_runs
    WHERE problem IS NULL
    UNION ALL
    SELECT run_id, servers, workers, problem, NULL, NULL, NULL
    FROM server_runs
    WHERE problem IS NOT NULL
)
SELECT wanted.run_id, wanted.phase, place::BIGINT AS place, problem, servers, workers, model_size_bytes, steps,
       transfers / steps AS transfers,
       phases * servers * workers AS expected_transfers,
       transfers / steps / nullif(phases * servers * workers, 0) AS transfers_ratio,
       payload / steps AS payload_bytes, wire / steps AS wire_bytes,
       phases * model_size_bytes * workers AS expected_bytes,
       payload / steps / nullif(phases * model_size_bytes * workers, 0) AS payload_ratio,
       mean_ms, mean_overlap_ms, mean_remaining_ms, remaining_steps, measured_by
FROM wanted
LEFT JOIN models USING (run_id)
LEFT JOIN sums USING (run_id, phase)
ORDER BY run_id, place
