-- question: How much does a data flow send in an iteration, compared with the size of the model?
-- subject: volume
-- row: a run
-- inputs: runs, flow_connections, step_flows, data_flows, unknown_payload
-- figure: farhat section 3 (flow sizes around twice the model)
-- answer: ratio, payload_ratio
-- column: run_id from flow_connections
-- column: framework
-- column: backend
-- column: model
-- column: topology
-- column: model_size_bytes bytes; model_bytes, else the nominal size
-- column: data_flows flows; data flows that sent something in a step; null where the payload of a flow is not known
-- column: flow_iterations flow iterations; pairs of a data flow and a step in which it sent something
-- column: mean_bytes bytes; mean wire bytes of a data flow in an iteration
-- column: median_bytes bytes; median of the same
-- column: mean_payload_bytes bytes; mean payload of a data flow in an iteration
-- column: ratio ratio; mean_bytes over model_size_bytes
-- column: payload_ratio ratio; mean_payload_bytes over model_size_bytes
-- column: ring_ratio ratio; of declared rings 2(N-1)/N, what each of N ranks sends for each byte of the model; null for other topologies
-- A data flow is a five-tuple as in data_flows. A ratio above ring_ratio is headers and retransmissions; it is lower
-- where several connections share a pair's data. N is the declared number of workers, else the number of hosts that
-- send on data flows, times the declared ranks of each.
WITH senders AS (
    SELECT run_id, count(DISTINCT src_ip) AS hosts
    FROM data_flows
    GROUP BY run_id
), step_sizes AS (
    SELECT s.run_id, n.flow_id, s.step, sum(s.wire_bytes) AS wire_bytes, sum(s.payload_bytes) AS payload_bytes
    FROM step_flows AS s
    JOIN flow_connections AS n ON n.run_id = s.run_id AND n.connection_id = s.flow_id
    SEMI JOIN data_flows AS d ON d.run_id = n.run_id AND d.flow_id = n.flow_id
    WHERE s.position = 'during'
    GROUP BY ALL
), measured AS (
    SELECT run_id, count(DISTINCT flow_id) AS data_flows, count(*) AS flow_iterations,
           avg(wire_bytes) AS mean_bytes, median(wire_bytes)::DOUBLE AS median_bytes,
           avg(payload_bytes) AS mean_payload_bytes
    FROM step_sizes
    GROUP BY run_id
)
SELECT run_id, framework, backend, model, topology,
       coalesce(model_bytes::DOUBLE, model_size_mb * 1e6) AS model_size_bytes,
       CASE WHEN run_id IN (SELECT run_id FROM unknown_payload) THEN NULL ELSE coalesce(data_flows, 0) END AS data_flows,
       CASE WHEN run_id IN (SELECT run_id FROM unknown_payload) THEN NULL ELSE coalesce(flow_iterations, 0) END AS flow_iterations,
       mean_bytes, median_bytes, mean_payload_bytes,
       mean_bytes / model_size_bytes AS ratio,
       mean_payload_bytes / model_size_bytes AS payload_ratio,
       CASE WHEN topology = 'ring' THEN 2 - 2 / nullif(coalesce(workers, senders.hosts) * coalesce(ranks_per_host, 1), 0) END AS ring_ratio
FROM runs
LEFT JOIN senders USING (run_id)
LEFT JOIN measured USING (run_id)
ORDER BY run_id
