-- question: When are a step's gradients aggregated at the parameter servers and its parameters distributed, and how much is that?
-- row: a run with a parameter server and a step; one row with a problem, and without a step, where phases cannot be separated
-- inputs: runs, steps, hosts, events, parameter_servers, parameter_server_flows, parameter_server_runs, parameter_server_pairs
-- figure: chang fig. 2 and section 3
-- column: run_id from steps
-- column: step from steps
-- column: problem
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
-- column: aggregation_remaining_ms ms; time for which workers still send after the last one's computation has ended, 0 where nothing is left; null without events
-- column: aggregation_measured_by; events; null where aggregation_remaining_ms is
-- column: distribution_remaining_ms ms; time for which servers still send after their update has ended, 0 where nothing is left; see below
-- column: distribution_measured_by; events, or estimate (then distribution_remaining_ms is an upper limit)
-- column: resolution_ms ms; length of a base window: the resolution of all times
-- A run with asynchronous servers has no phases (parameter_server_runs), only a problem. Bytes and times are those of
-- parameter_server_pairs. A transfer is a pair that moves at least half a shard: of the model's bytes over the servers,
-- or of the mean of the run's pairs where the model's size is unknown. The computation ends with the last worker's
-- backward event, where there are none with its last compute or forward event; aggregation_remaining_ms is null unless
-- every worker that exchanges data has some. The update ends with the servers' update events, where each server has
-- some and they begin before the distribution does (events), else with the last payload of the aggregation (estimate: a
-- server cannot have finished earlier). What is in flight is not being sent: a remaining time begins with the phase at the
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
), computed AS (
    SELECT run_id, step, count(DISTINCT worker) AS workers,
           coalesce(max(end_ns) FILTER (kind = 'backward'), max(end_ns)) AS end_ns
    FROM events
    JOIN peers USING (run_id, worker)
    WHERE kind IN ('compute', 'forward', 'backward')
    GROUP BY ALL
), updated AS (
    SELECT e.run_id, e.step, count(DISTINCT e.worker) AS servers, min(e.start_ns) AS begin_ns, max(e.end_ns) AS end_ns
    FROM events AS e
    JOIN hosts AS h ON h.run_id = e.run_id AND h.label = e.worker
    JOIN server_hosts AS p ON p.run_id = h.run_id AND p.host_ip = h.host_ip
    WHERE e.kind = 'update'
    GROUP BY ALL
), run_steps AS (
    SELECT DISTINCT run_id, step, problem
    FROM steps
    JOIN server_runs USING (run_id)
    JOIN peers USING (run_id, worker)
    WHERE problem IS NULL
    UNION ALL
    SELECT run_id, NULL, problem
    FROM server_runs
    WHERE problem IS NOT NULL
), measured AS (
    SELECT s.run_id, s.step, s.problem, b.* EXCLUDE (run_id, step),
           CASE WHEN c.workers = r.workers_with_data THEN c.end_ns END AS compute_end,
           CASE WHEN u.servers = r.servers AND u.begin_ns < distribution_begin THEN u.end_ns END AS update_end
    FROM run_steps AS s
    JOIN server_runs AS r ON r.run_id = s.run_id
    LEFT JOIN both_phases AS b ON b.run_id = s.run_id AND b.step = s.step
    LEFT JOIN computed AS c ON c.run_id = s.run_id AND c.step = s.step
    LEFT JOIN updated AS u ON u.run_id = s.run_id AND u.step = s.step
)
SELECT run_id, step, problem,
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
       CASE WHEN aggregation_end IS NOT NULL AND compute_end IS NOT NULL
            THEN greatest(aggregation_end - greatest(compute_end, aggregation_begin), 0) / 1e6 END AS aggregation_remaining_ms,
       CASE WHEN aggregation_end IS NOT NULL AND compute_end IS NOT NULL THEN 'events' END AS aggregation_measured_by,
       CASE WHEN distribution_end IS NOT NULL AND coalesce(update_end, aggregation_end) IS NOT NULL
            THEN greatest(distribution_end - greatest(coalesce(update_end, aggregation_end), distribution_begin), 0) / 1e6
       END AS distribution_remaining_ms,
       CASE WHEN distribution_end IS NULL THEN NULL
            WHEN update_end IS NOT NULL THEN 'events'
            WHEN aggregation_end IS NOT NULL THEN 'estimate' END AS distribution_measured_by,
       window_ns / 1e6 AS resolution_ms
FROM measured
ORDER BY run_id, step
