-- question: How do the workers of a run spend a step: computing, on the wire, both, or waiting?
-- row: a run and a worker
-- inputs: step_overlap
-- column: run_id; run
-- column: worker; label of the worker
-- column: measured_by; source of the computation: events, estimate, or both
-- column: steps steps; steps of the worker
-- column: step_ms ms; mean duration of a step
-- column: only_compute_ms ms; mean time of computation without payload on the wire
-- column: overlap_ms ms; mean time of both
-- column: only_wire_ms ms; mean time of payload on the wire without computation
-- column: waiting_ms ms; mean time of neither
-- column: overlap_share share; overlap of all steps over the wire time of all
-- column: wire_share_of_step share; wire time of all steps over their duration
-- The measures of a step are those of step_overlap; the four parts add up to step_ms. Waiting is for other workers, for
-- acknowledgements or for a lost packet, and the update.
SELECT run_id, worker, CASE WHEN count(DISTINCT measured_by) = 1 THEN min(measured_by) ELSE 'both' END AS measured_by,
       count(*) AS steps, avg(step_ms) AS step_ms,
       avg(greatest(compute_ms - coalesce(overlap_ms, 0), 0)) AS only_compute_ms,
       avg(overlap_ms) AS overlap_ms,
       avg(wire_ms - coalesce(overlap_ms, 0)) AS only_wire_ms,
       avg(greatest(step_ms - compute_ms - wire_ms + coalesce(overlap_ms, 0), 0)) AS waiting_ms,
       sum(overlap_ms) / nullif(sum(wire_ms) FILTER (overlap_ms IS NOT NULL), 0) AS overlap_share,
       sum(wire_ms) / nullif(sum(step_ms), 0) AS wire_share_of_step
FROM step_overlap
GROUP BY run_id, worker
ORDER BY run_id, worker
