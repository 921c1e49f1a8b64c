-- question: How much of a run is transmitted before, during and after the training?
-- subject: volume
-- row: a run with a log and a position: before the first step, during training, after the last step
-- inputs: step_flows
-- figure: farhat figs. 2 and 3
-- column: run_id
-- column: position; before, during or after the training
-- column: place; 1 before, 2 during, 3 after
-- column: packets packets; packets in this position
-- column: wire_bytes bytes; sum of the packets' original lengths
-- column: payload_bytes bytes; payload of these packets; null where that of a flow is not known
-- column: share_of_packets share; part of the run's packets
-- column: share_of_wire_bytes share; part of the run's wire bytes
-- The position of a packet is given by the log of the worker at whose host it was captured, as in step_flows. Runs
-- without a log have no rows: the start of their training is unknown.
WITH positions AS (
    SELECT run_id, unnest(['before', 'during', 'after']) AS position, unnest([1, 2, 3]) AS place
    FROM (SELECT DISTINCT run_id FROM step_flows)
), volume AS (
    SELECT run_id, position, sum(packets) AS packets, sum(wire_bytes) AS wire_bytes,
           CASE WHEN count(payload_bytes) = count(*) THEN sum(payload_bytes) END AS payload_bytes
    FROM step_flows
    GROUP BY ALL
)
SELECT run_id, position, place::BIGINT AS place,
       coalesce(packets, 0)::BIGINT AS packets,
       coalesce(wire_bytes, 0)::BIGINT AS wire_bytes,
       CASE WHEN volume.packets IS NULL THEN 0 ELSE payload_bytes END::BIGINT AS payload_bytes,
       coalesce(packets, 0) / sum(packets) OVER run AS share_of_packets,
       coalesce(wire_bytes, 0) / sum(wire_bytes) OVER run AS share_of_wire_bytes
FROM positions
LEFT JOIN volume USING (run_id, position)
WINDOW run AS (PARTITION BY run_id)
ORDER BY run_id, place
