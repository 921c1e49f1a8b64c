-- question: How long does a run take beside equal runs that lose no packet, and which attributes may explain it?
-- row: a run
-- inputs: duration_by_loss, run_attributes
-- figure: zerwas fig. 10, as the data of a regression
-- normalised_duration is 1 for a run as long as the mean of the lossless runs that are otherwise equal; null without such runs.
SELECT run_id, duration_s, normalised_duration,
       run_attributes.* EXCLUDE (run_id)
FROM run_attributes
LEFT JOIN duration_by_loss USING (run_id)
ORDER BY run_id
