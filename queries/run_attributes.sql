-- question: Which attributes of a run may explain what it sends and how long it takes?
-- subject: runs
-- row: a run
-- inputs: runs, hosts, steps, events, logged_steps, segmentation_offload, declared_law, parameter_servers, parameter_server_logs, capture_coverage
-- optional: events
-- figure: zerwas section VI, the right side of equation (1)
-- column: run_id from segmentation_offload
-- column: model_bytes
-- column: model_size_mb
-- column: nominal_bytes bytes; model_size_mb in bytes
-- column: framework_backend; framework and backend joined by a hyphen, one attribute as in the paper
-- column: batch_size
-- column: topology from runs
-- column: workers from runs
-- column: ranks_per_host ranks; declared ranks of each worker host, else 1
-- column: delay_ms
-- column: loss_pct
-- column: bandwidth_mbit
-- column: model
-- column: optimizer
-- column: offload; whether the run was captured with segmentation offload (segmentation_offload)
-- column: source
-- column: congestion_control
-- column: epochs
-- column: variant; as declared, without the number of a repetition at its end (r2)
-- column: planned_steps
-- column: steps steps; different steps in the run's logs; null without a log
-- column: finished; whether the log has all planned steps; null where none are planned, or without a log
-- column: fault; what was killed on purpose (process, host), or fault_kind of a fault that made a host or link slow; none
-- column: law_factor ratio; model sizes that the declared collective sends in a step among the run's workers and servers (declared_law); null without a law, and where a step of the log may be that of one worker or of all
-- column: disturbance; why the run is no clean example of its volume: incomplete captures, fault, unfinished, heavy loss or unknown steps, with the detail; null where none is known
-- A log in which no two workers have a step in common counts the updates of a server: a step is one worker's then. So it is in
-- the only log of a run with a server, where steps end at one instant: a worker does one after the other, and this is a
-- coordinator's, which waits for several workers at once. Where all logs are of hosts that exchange no model with the server
-- (and none is a chief, whose steps are those of all workers), a step of theirs may be of one worker or of all.
WITH thresholds AS (
    SELECT 1 AS heavy_loss_pct, -- %: from here on retransmissions add as much to a volume, several times the scatter of clean runs
           0.75 AS most_instants  -- instants at which steps end, over the steps: 1/2 with two workers, 1 in a worker's log
), kills AS (
    SELECT run_id, arg_min(regexp_replace(kind, '_killed$', ''), start_ns) AS fault
    FROM events
    WHERE kind IN ('process_killed', 'host_killed')
    GROUP BY run_id
), roles AS (
    SELECT run_id, count(*) FILTER (role = 'worker') AS worker_hosts, count(*) FILTER (role = 'parameter_server') AS servers
    FROM hosts
    GROUP BY run_id
), single_updates AS (
    SELECT run_id, true AS by_update
    FROM steps
    CROSS JOIN thresholds
    GROUP BY run_id
    HAVING CASE WHEN count(DISTINCT worker) > 1 THEN count(*) = count(DISTINCT step)
                -- whole seconds are a coarse clock's, at which any steps end together
                ELSE count(DISTINCT end_ns) <= any_value(most_instants) * count(*) AND bool_or(end_ns % 1000000000 <> 0)
                     AND run_id IN (SELECT run_id FROM parameter_servers) END
), unknown_steps AS (
    SELECT run_id, problem AS unknown
    FROM parameter_server_logs
    WHERE workers_with_data > 0 AND workers_with_log = 0 AND steps_from IS NULL
          AND run_id NOT IN (SELECT run_id FROM single_updates)
), parties AS (
    SELECT run_id, topology, CASE WHEN by_update THEN 1 ELSE coalesce(workers, nullif(worker_hosts, 0)) END AS party,
           coalesce(servers, 0) AS servers, coalesce(ranks_per_host, 1) AS ranks
    FROM runs
    LEFT JOIN roles USING (run_id)
    LEFT JOIN single_updates USING (run_id)
), laws AS (
    SELECT run_id, law_factor
    FROM (SELECT DISTINCT topology AS word, party, servers, ranks FROM parties WHERE party > 0) AS p
    JOIN LATERAL (FROM declared_law(word := p.word, worker_hosts := p.party, worker_ranks := p.ranks, server_hosts := p.servers)) AS l
      ON true
    JOIN parties AS r ON r.topology = p.word AND r.party = p.party AND r.servers = p.servers AND r.ranks = p.ranks
), described AS (
    SELECT run_id, model_bytes, model_size_mb, model_size_mb * 1e6 AS nominal_bytes,
           framework || coalesce('-' || backend, '') AS framework_backend,
           batch_size, topology, workers, coalesce(ranks_per_host, 1) AS ranks_per_host, delay_ms, loss_pct, bandwidth_mbit, model, optimizer, offload, source,
           congestion_control, epochs, nullif(regexp_replace(variant, '(^|[-_])(r|run|rep|repeat|seed)?[-_]?[0-9]+$', ''), '') AS variant,
           planned_steps, steps, steps >= planned_steps AS finished, coalesce(fault, fault_kind, 'none') AS fault,
           CASE WHEN unknown IS NULL THEN law_factor END AS law_factor, unknown,
           problem AS uncovered
    FROM runs
    JOIN segmentation_offload USING (run_id)
    LEFT JOIN logged_steps USING (run_id)
    LEFT JOIN kills USING (run_id)
    LEFT JOIN laws USING (run_id)
    LEFT JOIN unknown_steps USING (run_id)
    LEFT JOIN capture_coverage USING (run_id)
)
SELECT described.* EXCLUDE (unknown, uncovered),
       CASE WHEN uncovered IS NOT NULL THEN 'incomplete captures: ' || uncovered
            WHEN fault IN ('process', 'host') THEN 'fault: ' || fault || ' killed on purpose'
            WHEN fault <> 'none' THEN 'fault: ' || fault || ' made on purpose'
            WHEN NOT finished THEN 'unfinished: ' || steps || ' of ' || planned_steps || ' steps'
            WHEN loss_pct >= heavy_loss_pct THEN 'heavy loss: ' || loss_pct || '% of the packets'
            WHEN unknown IS NOT NULL THEN 'unknown steps: ' || unknown END AS disturbance
FROM described
CROSS JOIN thresholds
ORDER BY run_id
