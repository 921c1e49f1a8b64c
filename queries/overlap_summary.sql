-- question: How do the workers of a run spend a step: computing, on the wire, both, or waiting?
-- row: a run and a worker
-- inputs: step_overlap
-- Means of its steps, as step_overlap defines them: the four parts add up to step_ms. waiting_ms is neither computation nor
-- payload on the wire: waiting for others, for acknowledgements or for a lost packet, and the update. overlap_share is the
-- overlap of all steps over the wire time of all.
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
