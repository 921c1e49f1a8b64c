-- question: How far is the clock of each capture ahead of the reference, and how much of that may be no error of the clock?
-- subject: runs
-- row: a capture whose clock could be compared with that of another host
-- inputs: captures
-- answer: vantage_ip, clock_offset_ns, margin_ns, is_off
-- column: run_id
-- column: capture_id
-- column: vantage_ip
-- column: clock_reference_ip
-- column: clock_offset_ns
-- column: clock_offset_uncertainty_ns
-- column: margin_ns ns; what an offset may be beyond its uncertainty: 5 ms, or 1 s where the uncertainty is null, and the delay of the network is in the offset
-- column: is_off; whether the offset is more than its uncertainty and margin_ns together
WITH thresholds AS (
    SELECT 5_000_000 AS usual_ns, 1_000_000_000 AS one_way_ns
)
SELECT run_id, capture_id, vantage_ip, clock_reference_ip, clock_offset_ns, clock_offset_uncertainty_ns,
       CASE WHEN clock_offset_uncertainty_ns IS NULL THEN one_way_ns ELSE usual_ns END::BIGINT AS margin_ns,
       abs(clock_offset_ns) > coalesce(clock_offset_uncertainty_ns, 0) + margin_ns AS is_off
FROM captures
CROSS JOIN thresholds
WHERE clock_offset_ns IS NOT NULL
ORDER BY run_id, capture_id
