-- question: How much does a run transmit in all, and how large is the model?
-- subject: volume
-- row: a run
-- inputs: runs, flows, logged_steps
-- figure: zerwas fig. 3
-- answer: wire_bytes, payload_bytes
-- column: run_id from flows
-- column: framework
-- column: backend
-- column: model
-- column: model_bytes
-- column: model_size_mb
-- column: batch_size
-- column: topology
-- column: flows flows; five-tuples (five_tuples)
-- column: packets packets; packets of all flows
-- column: wire_bytes bytes; sum of the packets' original lengths
-- column: payload_bytes bytes; payload of these packets; null where that of a flow is not known
-- column: duration_s s; from the first packet to the last; null without packets
-- column: steps steps; different steps in the run's logs
WITH volume AS (
    SELECT run_id,
           count(DISTINCT (src_ip, dst_ip, protocol, src_port, dst_port, encapsulation_id, roce_dest_qp)) AS flows,
           sum(packets)::BIGINT AS packets, sum(wire_bytes)::BIGINT AS wire_bytes,
           CASE WHEN count(payload_bytes) = count(*) THEN sum(payload_bytes) END::BIGINT AS payload_bytes,
           (max(last_seen_ns) - min(first_seen_ns)) / 1e9 AS duration_s
    FROM flows
    GROUP BY run_id
)
SELECT run_id, framework, backend, model, model_bytes, model_size_mb, batch_size, topology,
       coalesce(flows, 0) AS flows, coalesce(packets, 0) AS packets, coalesce(wire_bytes, 0) AS wire_bytes,
       CASE WHEN volume.flows IS NULL THEN 0 ELSE payload_bytes END AS payload_bytes, duration_s, coalesce(steps, 0) AS steps
FROM runs
LEFT JOIN volume USING (run_id)
LEFT JOIN logged_steps USING (run_id)
ORDER BY run_id
