-- question: How many flows does a run have, and how many of them carry nearly all of the volume?
-- row: a run
-- inputs: runs, flows
-- param: share DOUBLE = 0.99; part of the run's wire bytes that the large flows must carry together
-- figure: zerwas fig. 5
-- A flow is a directed five-tuple here (in a tunnel, and of a RoCEv2 queue pair): connections that use the same ports one
-- after the other are one.
WITH five_tuples AS (
    SELECT run_id, src_ip, dst_ip, protocol, src_port, dst_port, encapsulation_id, roce_dest_qp,
           min(flow_id) AS flow_id, sum(wire_bytes) AS wire_bytes, sum(payload_bytes) AS payload_bytes
    FROM flows
    GROUP BY ALL
), ranked AS (
    SELECT run_id, payload_bytes,
           sum(wire_bytes) OVER (PARTITION BY run_id) AS run_bytes,
           -- what the larger flows carry already; a flow counts as long as that is not enough
           sum(wire_bytes) OVER (PARTITION BY run_id ORDER BY wire_bytes DESC, flow_id
                                 ROWS UNBOUNDED PRECEDING) - wire_bytes AS larger_bytes
    FROM five_tuples
)
SELECT run_id,
       count(payload_bytes) AS flows,
       count(*) FILTER (larger_bytes < $share * run_bytes) AS large_flows,
       count(*) FILTER (payload_bytes = 0) AS flows_without_payload
FROM runs
LEFT JOIN ranked USING (run_id)
GROUP BY run_id
ORDER BY run_id
