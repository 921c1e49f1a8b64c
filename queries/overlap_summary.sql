-- question: How do the workers of a run spend a step: computing, communicating, both, or waiting?
-- subject: steps
-- row: a run and a worker
-- inputs: step_overlap
-- answer: worker, overlap_share, problem
-- param: least_gbit_per_s DOUBLE = NULL; windows with less payload of a flow are no communication, Gbit/s; NULL: as in step_overlap
-- column: run_id
-- column: worker
-- column: measured_by; source of the computation: events, estimate, or both
-- column: steps steps; steps of the worker
-- column: captured_steps steps; those that the captures cover; the times of a step, bytes and wire_share_of_step are of these, without any of all steps
-- column: step_ms ms; mean duration of these steps
-- column: only_compute_ms ms; mean time of computation without communication on the wire
-- column: overlap_ms ms; mean time of both
-- column: only_wire_ms ms; mean time of communication on the wire without computation
-- column: waiting_ms ms; mean time of neither
-- column: payload_bytes bytes; payload that the worker sent and received in its steps
-- column: overlap_bytes bytes; part of it during its computation
-- column: overlap_share share; overlap_bytes over the payload of the steps whose computation is known: what is hidden
-- column: logged_communicate_ms ms; mean time of a step in which the program communicates by its log (communicate and allreduce events), over all steps that have events; null without
-- column: logged_communicate_share share; that time over the duration of these steps
-- column: wire_share_of_step share; time in which bytes of the worker move on the wire, over the duration of the captured steps
-- column: threshold_gbit_per_s Gbit/s; the least rate of a flow in a window that is communication
-- column: problem from step_overlap
-- A program communicates also while nothing of its moves: it waits for other workers, for acknowledgements, or copies
-- buffers. So the two shares differ, and neither replaces the other.
-- The measures of a step are those of step_overlap; the four times add up to step_ms, where all four are known. Bytes decide what is hidden, for
-- control messages are in almost every window; windows below threshold_gbit_per_s are not communication. Waiting is for
-- other workers, for acknowledgements or for a lost packet, and the update.
WITH counted AS (
    SELECT *, payload_bytes IS NOT NULL OR count(payload_bytes) OVER (PARTITION BY run_id, worker) = 0 AS counts
    FROM step_overlap(least_gbit_per_s := $least_gbit_per_s)
)
SELECT run_id, worker, CASE WHEN count(DISTINCT measured_by) = 2 THEN 'both' ELSE min(measured_by) END AS measured_by,
       count(*) AS steps, count(payload_bytes) AS captured_steps, avg(step_ms) FILTER (counts) AS step_ms,
       -- greatest() ignores nulls: what is not known is not 0
       avg(greatest(compute_ms - coalesce(overlap_ms, 0), 0)) FILTER (counts AND compute_ms IS NOT NULL) AS only_compute_ms,
       avg(overlap_ms) AS overlap_ms,
       avg(wire_ms - coalesce(overlap_ms, 0)) AS only_wire_ms,
       avg(greatest(step_ms - compute_ms - wire_ms + coalesce(overlap_ms, 0), 0))
           FILTER (compute_ms IS NOT NULL AND wire_ms IS NOT NULL) AS waiting_ms,
       sum(payload_bytes)::BIGINT AS payload_bytes,
       sum(overlap_bytes)::BIGINT AS overlap_bytes,
       sum(overlap_bytes) / nullif(sum(payload_bytes) FILTER (overlap_bytes IS NOT NULL), 0) AS overlap_share,
       avg(communicate_ms) FILTER (measured_by = 'events') AS logged_communicate_ms,
       sum(communicate_ms) FILTER (measured_by = 'events')
           / nullif(sum(step_ms) FILTER (measured_by = 'events' AND communicate_ms IS NOT NULL), 0) AS logged_communicate_share,
       sum(wire_ms) / nullif(sum(step_ms) FILTER (wire_ms IS NOT NULL), 0) AS wire_share_of_step,
       any_value(threshold_gbit_per_s) AS threshold_gbit_per_s, any_value(problem) AS problem
FROM counted
GROUP BY run_id, worker
ORDER BY run_id, worker
