-- question: Which flows carry the exchange of a run, and by whose log do their bytes belong to steps?
-- subject: collectives
-- row: a run and a flow that carries a part of the exchange
-- inputs: topology_matches, several_patterns, topology_edges, flows, step_flows, hosts, steps, step_synchrony
-- column: run_id
-- column: flow_id from flows
-- column: src_ip
-- column: dst_ip
-- column: worker; label of the worker whose steps the flow's bytes are in: the receiver's, see below
-- column: sender; label of the worker that ends a step too: the sender's; the same as worker where it has no log or nobody waits
-- The flows of the pairs that carry the exchange (topology_edges; in pair averaging of all pairs) with at least a tenth
-- of the payload that the heaviest flow of their pair sends in the same steps: control messages have connections of
-- their own, and parallel connections share a pair's payload about evenly.
-- The steps are those of the receiver, of the sender where the receiver has no log, or of the run's first log where
-- neither has one. A sender ends its step when its last bytes are in a buffer, the receiver when it has received them.
-- So a step of a flow ends when the later one of both ends it: the receiver, or the sender, whose log and capture share
-- a clock. In asynchronous training (step_synchrony) only the receiver's end counts.
WITH thresholds AS (
    SELECT 0.1 AS least_share  -- of the payload of the pair's heaviest flow: less is control
), shapes AS MATERIALIZED (
    SELECT run_id, coalesce(several.topology, m.topology) AS topology, level
    FROM topology_matches AS m  -- topology also finds roots, which takes longer than all else here
    LEFT JOIN several_patterns AS several USING (run_id)
    WHERE level IS NOT NULL
), pairs AS (
    SELECT run_id, src_ip, dst_ip
    FROM topology_edges
    JOIN shapes USING (run_id, level)
    WHERE topology <> 'pair_averaging'
), sent AS (
    SELECT run_id, flow_id, src_ip, dst_ip, step, sum(s.payload_bytes) AS payload
    FROM step_flows AS s
    JOIN flows USING (run_id, flow_id)
    JOIN shapes USING (run_id)
    WHERE position = 'during' AND s.payload_bytes > 0
      AND (topology = 'pair_averaging' OR (run_id, src_ip, dst_ip) IN (SELECT (run_id, src_ip, dst_ip) FROM pairs))
    GROUP BY ALL
), compared AS (
    SELECT *, max(payload) OVER (PARTITION BY run_id, src_ip, dst_ip, step) AS heaviest
    FROM sent
), carrying AS (
    SELECT run_id, flow_id, src_ip, dst_ip
    FROM compared
    CROSS JOIN thresholds
    GROUP BY run_id, flow_id, src_ip, dst_ip, least_share
    HAVING sum(payload) >= least_share * sum(heaviest)
), logged AS (
    SELECT run_id, host_ip, any_value(worker) AS worker
    FROM hosts
    JOIN (SELECT DISTINCT run_id, worker FROM steps) AS s USING (run_id)
    WHERE label = s.worker
    GROUP BY run_id, host_ip
), first_logs AS (
    SELECT run_id, min(worker) AS worker
    FROM steps
    GROUP BY run_id
)
SELECT c.run_id, c.flow_id, c.src_ip, c.dst_ip, coalesce(receiver.worker, sender.worker, first_logs.worker) AS worker,
       CASE WHEN sender.worker IS NULL OR is_asynchronous THEN coalesce(receiver.worker, sender.worker, first_logs.worker)
            ELSE sender.worker END AS sender
FROM carrying AS c
JOIN first_logs USING (run_id)
LEFT JOIN step_synchrony USING (run_id)
LEFT JOIN logged AS receiver ON receiver.run_id = c.run_id AND receiver.host_ip = c.dst_ip
LEFT JOIN logged AS sender ON sender.run_id = c.run_id AND sender.host_ip = c.src_ip
ORDER BY c.run_id, c.flow_id
