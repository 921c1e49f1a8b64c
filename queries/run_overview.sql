-- question: What runs are there, and are their captures complete?
-- subject: runs
-- row: a run
-- inputs: runs, total_volume, run_hosts, captures, segmentation_offload
-- column: run_id from total_volume
-- column: topology
-- column: hosts hosts; hosts of the run that count (run_hosts): not those that only neighbour discovery or pings show
-- column: wire_bytes bytes; sum of all packets' original lengths
-- column: packets
-- column: duration_s s; from the first packet to the last
-- column: steps
-- column: framework
-- column: backend
-- column: model
-- column: model_mb MB (10^6 bytes); model_bytes, else the nominal size
-- column: batch_size
-- column: source
-- column: offload; whether the run was captured with segmentation offload (segmentation_offload)
-- column: captures captures; capture files
-- column: partial_captures captures; capture files that are truncated or corrupt
-- column: copied_captures captures; capture files that hold as many packets and bytes as another one, from the same first to the same last time: their packets count once
-- The values of a run whose source is synthetic are computed, not measured.
WITH host_count AS (
    SELECT run_id, count(*) AS hosts
    FROM run_hosts
    GROUP BY run_id
), capture_count AS (
    SELECT run_id, count(*) AS captures, count(*) FILTER (status <> 'complete') AS partial_captures,
           count(*) FILTER (records > 0) - count(DISTINCT (first_ns, last_ns, records, wire_bytes)) FILTER (records > 0) AS copied_captures
    FROM captures
    GROUP BY run_id
), origin AS (
    SELECT run_id, source
    FROM runs
)
SELECT run_id, topology, coalesce(hosts, 0) AS hosts, wire_bytes, packets, duration_s, steps,
       framework, backend, model, coalesce(model_bytes / 1e6, model_size_mb) AS model_mb, batch_size,
       source, offload, coalesce(captures, 0) AS captures, coalesce(partial_captures, 0) AS partial_captures,
       coalesce(copied_captures, 0) AS copied_captures
FROM total_volume
JOIN origin USING (run_id)
JOIN segmentation_offload USING (run_id)
LEFT JOIN host_count USING (run_id)
LEFT JOIN capture_count USING (run_id)
ORDER BY run_id
