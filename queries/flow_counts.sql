-- question: How many flows does a run have, how many carry nearly all of the volume, and what are the others?
-- subject: volume
-- row: a run
-- inputs: runs, five_tuples
-- param: share DOUBLE = 0.99; part of the run's wire bytes that the large flows must carry together
-- param: ack_share DOUBLE = 0.01; most payload of an acknowledgement flow, as a share of the payload of the flow that it answers
-- figure: zerwas fig. 5
-- column: run_id from five_tuples
-- column: flows flows; five-tuples (five_tuples)
-- column: large_flows flows; fewest flows that together carry the share of the run's wire bytes
-- column: flows_without_payload flows; flows that carry no payload at all
-- column: large_data_flows flows; large flows that are no acknowledgement flows
-- column: acknowledgement_flows flows; flows that answer a large flow with nearly no payload
-- column: side_flows flows; all others: flows = large_data_flows + acknowledgement_flows + side_flows
-- An acknowledgement flow goes back along a large flow (addresses and ports exchanged) and has nearly no payload. Small
-- segments are acknowledged with so many bytes that an acknowledgement flow may be among the large flows.
-- All that depends on payload is null where that of a flow is not known.
WITH ranked AS (
    SELECT *,
           -- what the larger flows carry already; a flow counts as long as that is not enough
           sum(wire_bytes) OVER (PARTITION BY run_id ORDER BY wire_bytes DESC, flow_id ROWS UNBOUNDED PRECEDING) - wire_bytes
               < $share * sum(wire_bytes) OVER (PARTITION BY run_id) AS is_large
    FROM five_tuples
), answered AS (  -- the payload of the large flows with these ends
    SELECT run_id, src_ip, dst_ip, protocol, src_port, dst_port, max(payload_bytes) AS data_bytes
    FROM ranked
    WHERE is_large
    GROUP BY ALL
), classed AS (
    SELECT r.run_id, r.payload_bytes, r.is_large,
           coalesce(r.payload_bytes <= $ack_share * data_bytes AND data_bytes > 0, false) AS is_acknowledgement
    FROM ranked AS r
    LEFT JOIN answered AS a
        ON a.run_id = r.run_id AND a.protocol = r.protocol AND a.src_ip = r.dst_ip AND a.dst_ip = r.src_ip
       AND a.src_port = r.dst_port AND a.dst_port = r.src_port
)
SELECT run_id,
       count(is_large) AS flows,
       count(*) FILTER (is_large) AS large_flows,
       CASE WHEN count(payload_bytes) = count(is_large) THEN count(*) FILTER (payload_bytes = 0) END AS flows_without_payload,
       CASE WHEN count(payload_bytes) = count(is_large) THEN count(*) FILTER (is_large AND NOT is_acknowledgement) END AS large_data_flows,
       CASE WHEN count(payload_bytes) = count(is_large) THEN count(*) FILTER (is_acknowledgement) END AS acknowledgement_flows,
       CASE WHEN count(payload_bytes) = count(is_large)
            THEN count(*) FILTER (NOT is_large AND NOT is_acknowledgement) END AS side_flows
FROM runs
LEFT JOIN classed USING (run_id)
GROUP BY run_id
ORDER BY run_id
