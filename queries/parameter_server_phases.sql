-- question: When are a step's gradients aggregated at the parameter servers and its parameters distributed, and how much is that?
-- subject: servers
-- row: a run with a parameter server and a step; one row with a problem, and without a step, where phases cannot be separated
-- inputs: runs, hosts, program_events, parameter_servers, parameter_server_flows, parameter_server_runs, parameter_server_pairs, parameter_server_steps
-- figure: chang fig. 2 and section 3
-- answer: step, aggregation_ms, distribution_ms, problem
-- column: run_id from parameter_server_steps
-- column: step from parameter_server_steps
-- column: problem
-- column: steps_from from parameter_server_runs
-- column: aggregation_payload_bytes bytes; payload that workers send to servers in the step
-- column: aggregation_wire_bytes bytes; original lengths of its frames
-- column: aggregation_transfers transfers; transfers from workers to servers
-- column: aggregation_start_ns ns since the epoch, UTC; start of the first pair
-- column: aggregation_end_ns ns since the epoch, UTC; end of the last pair
-- column: aggregation_ms ms; aggregation_end_ns - aggregation_start_ns
-- column: distribution_payload_bytes bytes; payload that servers send to workers in the step
-- column: distribution_wire_bytes bytes; original lengths of its frames
-- column: distribution_transfers transfers; transfers from servers to workers
-- column: distribution_start_ns ns since the epoch, UTC; start of the first pair
-- column: distribution_end_ns ns since the epoch, UTC; end of the last pair
-- column: distribution_ms ms; distribution_end_ns - distribution_start_ns
-- column: aggregation_share share; aggregation's part of the payload of both phases
-- column: overlap_ms ms; time for which both phases last
-- column: compute_ms ms; time for which a worker computes, the mean over workers; see below
-- column: compute_measured_by; events (of the logs), or wire (then compute_ms is an upper limit); null where compute_ms is
-- column: aggregation_remaining_ms ms; time for which workers still send after the last one's computation has ended, 0 where nothing is left
-- column: aggregation_measured_by; events, or wire (then aggregation_remaining_ms is an upper limit); null where that is
-- column: distribution_remaining_ms ms; time for which servers still send after their update has ended, 0 where nothing is left; see below
-- column: distribution_measured_by; events, or estimate (then distribution_remaining_ms is an upper limit)
-- column: not_told; which of these times cannot be told, and why; null where all are
-- column: resolution_ms ms; length of a base window: the resolution of all times
-- A run with asynchronous servers has no phases (parameter_server_runs), only a problem. Bytes and times are those of
-- parameter_server_pairs. A transfer is a pair that moves at least half a shard: of the model's bytes over the servers,
-- or of the mean of the run's pairs where the model's size is unknown. The computation ends with the last worker's
-- backward event, where there are none with its last compute or forward event; compute_ms is from the first such event to the
-- last. Unless every worker that exchanges data has some, the wire tells: a worker computes from its last parameters (as the
-- server sends them, and delay_ms later) to its first gradients, and the mean is over those that send some. What it does besides, and a bottleneck behind the capture,
-- is in that; gradients of some layers may be sent while others are computed. In the runs of PyTorch's servers in
-- data/dataset, whose workers log all that, gradients begin within 0.4 ms of the end of the computation (median; 95% within 2.0 ms),
-- and from parameters to gradients the wire is 0.7 ms (3.7 ms) off (tests/query/test_parameter_servers.py). The update ends with the servers' update events, where each server has
-- some and they begin before the distribution does (events), else with the last payload of the aggregation (estimate: a
-- server cannot have finished earlier). Where workers pull parameters before they compute (TensorFlow), the distribution
-- of a step follows the update of the step before, and distribution_remaining_ms is null. What is in flight is not being sent: a remaining time begins with the phase at the
-- earliest, so that it is never longer than the phase, whatever the delay of the network.
WITH server_runs AS (
    FROM parameter_server_runs
), server_hosts AS (
    FROM parameter_servers
), pairs AS (
    FROM parameter_server_pairs
    SEMI JOIN (FROM server_runs WHERE problem IS NULL) USING (run_id)
), shards AS (
    SELECT run_id, coalesce(any_value(coalesce(model_bytes::DOUBLE, model_size_mb * 1e6) / servers),
                            avg(payload_bytes)) AS shard_bytes
    FROM pairs
    JOIN runs USING (run_id)
    JOIN server_runs USING (run_id)
    GROUP BY run_id
), phases AS (
    SELECT run_id, step, phase, sum(payload_bytes) AS payload, sum(wire_bytes) AS wire,
           count(*) FILTER (2 * payload_bytes >= shard_bytes) AS transfers,
           min(begin_ns) AS begin_ns, max(end_ns) AS end_ns, max(window_ns) AS window_ns
    FROM pairs
    JOIN shards USING (run_id)
    GROUP BY run_id, step, phase
), both_phases AS (
    SELECT run_id, step, max(window_ns) AS window_ns,
           max(payload) FILTER (phase = 'aggregation')::BIGINT AS aggregation_payload,
           max(wire) FILTER (phase = 'aggregation')::BIGINT AS aggregation_wire,
           max(transfers) FILTER (phase = 'aggregation') AS aggregation_transfers,
           max(begin_ns) FILTER (phase = 'aggregation') AS aggregation_begin,
           max(end_ns) FILTER (phase = 'aggregation') AS aggregation_end,
           max(payload) FILTER (phase = 'distribution')::BIGINT AS distribution_payload,
           max(wire) FILTER (phase = 'distribution')::BIGINT AS distribution_wire,
           max(transfers) FILTER (phase = 'distribution') AS distribution_transfers,
           max(begin_ns) FILTER (phase = 'distribution') AS distribution_begin,
           max(end_ns) FILTER (phase = 'distribution') AS distribution_end
    FROM phases
    GROUP BY ALL
), peers AS (
    SELECT DISTINCT run_id, worker
    FROM parameter_server_flows
), worker_events AS (
    SELECT run_id, step, worker, min(start_ns) AS begin_ns,
           coalesce(max(end_ns) FILTER (kind = 'backward'), max(end_ns)) AS end_ns
    FROM program_events
    JOIN peers USING (run_id, worker)
    WHERE kind IN ('compute', 'forward', 'backward')
    GROUP BY ALL
), computed AS (
    SELECT run_id, step, count(*) AS workers, max(end_ns) AS end_ns, avg(end_ns - begin_ns) AS compute_ns
    FROM worker_events
    GROUP BY ALL
), worker_ends AS (
    SELECT run_id, step, worker_ip, max(window_ns) AS window_ns, any_value((coalesce(delay_ms, 0) * 1e6)::BIGINT) AS delay_ns,
           min(begin_ns) FILTER (phase = 'aggregation') AS push_ns, min(begin_ns) FILTER (phase = 'distribution') AS pull_ns,
           max(end_ns) FILTER (phase = 'distribution') AS pulled_ns
    FROM pairs
    JOIN runs USING (run_id)
    GROUP BY ALL
), worker_computes AS (  -- from the parameters of this step, where it begins with them, or of the step before
    SELECT *, pull_ns < push_ns AS pulls_first,
           push_ns - delay_ns - CASE WHEN pulls_first THEN pulled_ns
                                     ELSE lag(pulled_ns) OVER (PARTITION BY run_id, worker_ip ORDER BY step) END AS compute_ns
    FROM worker_ends
), wired AS (
    SELECT run_id, step, max(push_ns) AS push_ns, bool_and(pulls_first) AS pulls_first,
           CASE WHEN count(compute_ns) < count(push_ns) THEN 'no parameters before the gradients'
                WHEN min(compute_ns + window_ns) < 0 THEN 'a worker sends gradients before it has all parameters'
           END AS untold,
           CASE WHEN untold IS NULL THEN avg(greatest(compute_ns, 0)) END AS compute_ns
    FROM worker_computes
    WHERE push_ns IS NOT NULL
    GROUP BY run_id, step
), updated AS (
    SELECT e.run_id, e.step, count(DISTINCT e.worker) AS servers, min(e.start_ns) AS begin_ns, max(e.end_ns) AS end_ns
    FROM program_events AS e
    JOIN hosts AS h ON h.run_id = e.run_id AND h.label = e.worker
    JOIN server_hosts AS p ON p.run_id = h.run_id AND p.host_ip = h.host_ip
    WHERE e.kind = 'update'
    GROUP BY ALL
), run_steps AS (
    SELECT DISTINCT run_id, step, problem
    FROM parameter_server_steps
    JOIN server_runs USING (run_id)
    WHERE problem IS NULL
    UNION ALL
    SELECT run_id, NULL, problem
    FROM server_runs
    WHERE problem IS NOT NULL
), measured AS (
    SELECT s.run_id, s.step, s.problem, CASE WHEN s.problem IS NULL THEN r.steps_from END AS steps_from, b.* EXCLUDE (run_id, step),
           CASE WHEN c.workers = r.workers_with_data THEN 'events' WHEN w.push_ns IS NOT NULL THEN 'wire' END AS measured_by,
           CASE measured_by WHEN 'events' THEN c.end_ns ELSE w.push_ns END AS compute_end,
           CASE measured_by WHEN 'events' THEN c.compute_ns ELSE w.compute_ns END AS compute_ns,
           CASE measured_by WHEN 'wire' THEN w.untold END AS untold, pulls_first,
           CASE WHEN u.servers = r.servers AND u.begin_ns < distribution_begin THEN u.end_ns END AS update_end
    FROM run_steps AS s
    JOIN server_runs AS r ON r.run_id = s.run_id
    LEFT JOIN both_phases AS b ON b.run_id = s.run_id AND b.step = s.step
    LEFT JOIN wired AS w ON w.run_id = s.run_id AND w.step = s.step
    LEFT JOIN computed AS c ON c.run_id = s.run_id AND c.step = s.step
    LEFT JOIN updated AS u ON u.run_id = s.run_id AND u.step = s.step
)
SELECT run_id, step, problem, steps_from,
       aggregation_payload AS aggregation_payload_bytes, aggregation_wire AS aggregation_wire_bytes,
       aggregation_transfers,
       aggregation_begin AS aggregation_start_ns, aggregation_end AS aggregation_end_ns,
       (aggregation_end - aggregation_begin) / 1e6 AS aggregation_ms,
       distribution_payload AS distribution_payload_bytes, distribution_wire AS distribution_wire_bytes,
       distribution_transfers,
       distribution_begin AS distribution_start_ns, distribution_end AS distribution_end_ns,
       (distribution_end - distribution_begin) / 1e6 AS distribution_ms,
       aggregation_payload / nullif(aggregation_payload + distribution_payload, 0) AS aggregation_share,
       CASE WHEN aggregation_begin IS NOT NULL AND distribution_begin IS NOT NULL
            THEN greatest(least(aggregation_end, distribution_end)
                          - greatest(aggregation_begin, distribution_begin), 0) / 1e6 END AS overlap_ms,
       compute_ns / 1e6 AS compute_ms, CASE WHEN compute_ns IS NOT NULL THEN measured_by END AS compute_measured_by,
       CASE WHEN aggregation_end IS NOT NULL AND compute_end IS NOT NULL
            THEN greatest(aggregation_end - greatest(compute_end, aggregation_begin), 0) / 1e6 END AS aggregation_remaining_ms,
       CASE WHEN aggregation_end IS NOT NULL AND compute_end IS NOT NULL THEN measured_by END AS aggregation_measured_by,
       CASE WHEN distribution_end IS NOT NULL AND coalesce(update_end, aggregation_end) IS NOT NULL AND NOT coalesce(pulls_first, false)
            THEN greatest(distribution_end - greatest(coalesce(update_end, aggregation_end), distribution_begin), 0) / 1e6
       END AS distribution_remaining_ms,
       CASE WHEN distribution_end IS NULL OR pulls_first THEN NULL
            WHEN update_end IS NOT NULL THEN 'events'
            WHEN aggregation_end IS NOT NULL THEN 'estimate' END AS distribution_measured_by,
       nullif(concat_ws('; ', 'compute_ms: ' || untold,
                        CASE WHEN pulls_first AND distribution_end IS NOT NULL
                             THEN 'distribution_remaining_ms: workers pull before they compute, so the update that it follows is the step''s before' END),
              '') AS not_told,
       window_ns / 1e6 AS resolution_ms
FROM measured
ORDER BY run_id, step
