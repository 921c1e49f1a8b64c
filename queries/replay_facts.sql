-- question: What does a replay of a run need: the time of a step, its computation, and the conditions of the network?
-- subject: steps
-- row: a run
-- inputs: runs, hosts, step_time_rows, program_events, topology, step_volume, flows, flow_windows, unknown_payload
-- param: skip_steps BIGINT = 1; first steps of each run that are left out, as in step_time_rows
-- column: run_id from runs
-- column: job; framework, backend, topology, model, batch size and workers: runs of a job differ in their network only
-- column: program; framework, backend and topology
-- column: topology; declared topology, else the inferred one
-- column: model_bytes
-- column: batch_size
-- column: workers hosts; declared number of workers, else the hosts whose role is worker; null without any
-- column: step_payload_bytes bytes; payload of all hosts in a step, the median of these steps
-- column: bandwidth_mbit Mbit/s; declared rate of each link; null where none is declared: a replay must be told then, for traffic does not show the rate of a link that is not full
-- column: measured_mbit Mbit/s; 99th percentile of what a host sent in 10 ms, of the host with the largest: what was used of a link
-- column: delay_ms ms; one-way delay added between any two hosts; 0 where none is declared
-- column: loss_pct percent; packets dropped on purpose; 0 where none is declared
-- column: congestion_control; congestion control of TCP
-- column: burst_bytes
-- column: steps steps; logged steps that step_ms is of; 0 for a run without a log, or with its first steps only
-- column: step_ms ms; median over these steps of the mean over workers; null where there are none
-- column: compute_ms ms; the same of the slowest worker's compute, forward and backward events; null without them
-- column: problem; all reasons why the run cannot be replayed, each with what to give; null where it can
WITH timed AS (
    SELECT run_id, step, step_ms AS ms
    FROM step_time_rows(skip_steps := $skip_steps)
    WHERE step_ms > 0
), medians AS (
    SELECT run_id, count(*) AS steps, median(ms) AS step_ms
    FROM timed
    GROUP BY run_id
), volumes AS (
    SELECT run_id, median(payload_bytes)::BIGINT AS step_payload_bytes
    FROM step_volume
    SEMI JOIN timed USING (run_id, step)
    GROUP BY run_id
), sent AS (
    SELECT w.run_id, src_ip, window_start_ns // 10000000 AS slot, sum(w.wire_bytes) AS bytes
    FROM flow_windows AS w
    JOIN flows AS f ON f.run_id = w.run_id AND f.flow_id = w.flow_id
    GROUP BY ALL
), rates AS (
    SELECT run_id, max(mbit) AS measured_mbit
    FROM (SELECT run_id, src_ip, quantile_cont(bytes, 0.99) * 8 / 1e4 AS mbit FROM sent GROUP BY ALL)
    GROUP BY run_id
), computing AS (
    SELECT run_id, worker, step, sum(end_ns - start_ns) / 1e6 AS ms
    FROM program_events
    SEMI JOIN timed USING (run_id, step)
    WHERE kind IN ('compute', 'forward', 'backward')
    GROUP BY ALL
), slowest AS (
    SELECT run_id, step, max(ms) AS ms
    FROM computing
    GROUP BY ALL
), computed AS (
    SELECT run_id, median(ms) AS compute_ms
    FROM slowest
    GROUP BY run_id
), interrupted AS (
    SELECT DISTINCT run_id
    FROM program_events
    WHERE kind IN ('process_killed', 'host_killed', 'restart', 'restore')
), labelled AS (
    SELECT run_id, count(*) AS labelled_workers
    FROM hosts
    WHERE role = 'worker'
    GROUP BY run_id
), facts AS (
    SELECT r.run_id, concat_ws('-', framework, backend) AS framework_backend, coalesce(r.topology, t.topology) AS topology,
           model, model_bytes, batch_size, coalesce(workers, labelled_workers) AS workers, step_payload_bytes, measured_mbit,
           bandwidth_mbit, coalesce(delay_ms, 0) AS delay_ms,
           coalesce(loss_pct, 0) AS loss_pct, congestion_control, burst_bytes, coalesce(steps, 0) AS steps, step_ms, compute_ms,
           i.run_id IS NOT NULL AS is_interrupted, ranks_per_host
    FROM runs AS r
    LEFT JOIN medians USING (run_id)
    LEFT JOIN topology AS t USING (run_id)
    LEFT JOIN computed USING (run_id)
    LEFT JOIN volumes USING (run_id)
    LEFT JOIN rates USING (run_id)
    LEFT JOIN labelled USING (run_id)
    LEFT JOIN interrupted AS i ON i.run_id = r.run_id
)
SELECT run_id, concat_ws(' ', framework_backend, topology, model, batch_size, workers) AS job,
       concat_ws(' ', framework_backend, topology) AS program, topology, model_bytes, batch_size, workers,
       step_payload_bytes, bandwidth_mbit, measured_mbit, delay_ms, loss_pct, congestion_control, burst_bytes, steps, step_ms, compute_ms,
       nullif(concat_ws('; ',
           CASE WHEN is_interrupted THEN 'a process was killed or restarted' END,
           u.problem,
           CASE WHEN ranks_per_host > 1 THEN 'hosts have ' || ranks_per_host || ' ranks: rounds of these are not modelled' END,
           CASE WHEN steps = 0 THEN 'no logged step but the first: ingest it with a train_history.log in its folder, or give --infer-steps' END,
           'not declared in its run.toml or runs.csv: ' || nullif(concat_ws(', ',
               CASE WHEN model_bytes IS NULL AND step_payload_bytes IS NULL THEN 'model_bytes' END,
               CASE WHEN workers IS NULL THEN 'workers (no host has the role of one)' END,
               CASE WHEN topology IS NULL OR topology = 'unknown' THEN 'topology (the traffic does not show it)' END), '')), '') AS problem
FROM facts
LEFT JOIN unknown_payload AS u USING (run_id)
ORDER BY run_id
