-- question: How do the workers of a run spend a step: computing, communicating, both, or waiting?
-- row: a run and a worker
-- inputs: step_overlap
-- param: least_gbit_per_s DOUBLE = NULL; windows with less payload of a flow are no communication, Gbit/s; NULL: as in step_overlap
-- column: run_id
-- column: worker
-- column: measured_by; source of the computation: events, estimate, or both
-- column: steps steps; steps of the worker
-- column: step_ms ms; mean duration of a step
-- column: only_compute_ms ms; mean time of computation without communication on the wire
-- column: overlap_ms ms; mean time of both
-- column: only_wire_ms ms; mean time of communication on the wire without computation
-- column: waiting_ms ms; mean time of neither
-- column: payload_bytes bytes; payload that the worker sent and received in its steps
-- column: overlap_bytes bytes; part of it during its computation
-- column: overlap_share share; overlap_bytes over the payload of the steps whose computation is known: what is hidden
-- column: wire_share_of_step share; communication on the wire of all steps over their duration
-- column: threshold_gbit_per_s Gbit/s; the least rate of a flow in a window that is communication
-- The measures of a step are those of step_overlap; the four times add up to step_ms. Bytes decide what is hidden, for
-- control messages are in almost every window; windows below threshold_gbit_per_s are not communication. Waiting is for
-- other workers, for acknowledgements or for a lost packet, and the update.
SELECT run_id, worker, CASE WHEN count(DISTINCT measured_by) = 1 THEN min(measured_by) ELSE 'both' END AS measured_by,
       count(*) AS steps, avg(step_ms) AS step_ms,
       avg(greatest(compute_ms - coalesce(overlap_ms, 0), 0)) AS only_compute_ms,
       avg(overlap_ms) AS overlap_ms,
       avg(wire_ms - coalesce(overlap_ms, 0)) AS only_wire_ms,
       avg(greatest(step_ms - compute_ms - wire_ms + coalesce(overlap_ms, 0), 0)) AS waiting_ms,
       sum(payload_bytes)::BIGINT AS payload_bytes,
       sum(overlap_bytes)::BIGINT AS overlap_bytes,
       sum(overlap_bytes) / nullif(sum(payload_bytes) FILTER (overlap_bytes IS NOT NULL), 0) AS overlap_share,
       sum(wire_ms) / nullif(sum(step_ms), 0) AS wire_share_of_step,
       any_value(threshold_gbit_per_s) AS threshold_gbit_per_s
FROM step_overlap(least_gbit_per_s := $least_gbit_per_s)
GROUP BY run_id, worker
ORDER BY run_id, worker
