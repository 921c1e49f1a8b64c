-- question: Was a run captured with segmentation offload, so that its packets are super-frames of several segments?
-- subject: runs
-- row: a run
-- inputs: runs, flows
-- column: run_id from flows
-- column: offload; whether a flow has packets of more payload than its segments may have; null without flows, and where they have more than 1,500 bytes and their MSS is unknown
-- column: saved_header_share ratio; bytes of headers that the capture lacks, over the bytes on the cable; null where offload is
-- Offload cuts super-frames into segments in the network card, after the capture (tcpdump's man page, section BUGS, and
-- the Linux kernel's documentation, networking/segmentation-offloads). Wire bytes of such a run lack the headers of all
-- segments but one of each super-frame; cable_bytes_estimate of flows adds them.
WITH flow_bytes AS (
    SELECT run_id, wire_bytes, cable_bytes_estimate
    FROM flows
)
SELECT run_id,
       CASE WHEN coalesce(bool_or(cable_bytes_estimate > wire_bytes), false) THEN true
            WHEN count(wire_bytes) BETWEEN 1 AND count(cable_bytes_estimate) THEN false END AS offload,
       CASE WHEN count(wire_bytes) = count(cable_bytes_estimate)
            THEN 1 - sum(wire_bytes) / nullif(sum(cable_bytes_estimate), 0) END AS saved_header_share
FROM runs
LEFT JOIN flow_bytes USING (run_id)
GROUP BY run_id
ORDER BY run_id
