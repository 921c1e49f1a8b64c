-- question: Which captures are on another clock than those of the run's other hosts?
-- row: a capture, and the evidence against its clock
-- inputs: captures, clock_offsets
-- column: run_id
-- column: capture_id
-- column: vantage_ip; host at which it was captured
-- column: problem; the evidence
-- column: off_by_ms ms; estimated offset of the clock; where no time is shared, the gap to the nearest other host's captures
-- An offset counts beyond its uncertainty and margin (clock_offsets).
WITH captured_hosts AS (  -- files of one host that follow each other are one capture
    SELECT run_id, vantage_ip, min(first_ns) AS begin_ns, max(last_ns) AS end_ns
    FROM captures
    WHERE vantage_ip IS NOT NULL AND records > 0
    GROUP BY run_id, vantage_ip
    HAVING begin_ns <= end_ns
), without_shared_time AS (
    SELECT a.run_id, a.vantage_ip, min(greatest(a.begin_ns - b.end_ns, b.begin_ns - a.end_ns)) AS gap_ns
    FROM captured_hosts AS a
    JOIN captured_hosts AS b ON b.run_id = a.run_id AND b.vantage_ip <> a.vantage_ip
    GROUP BY a.run_id, a.vantage_ip
    HAVING gap_ns > 0
), problems AS (
    SELECT run_id, capture_id, vantage_ip, 'its clock differs from that of clock_reference_ip' AS problem,
           clock_offset_ns / 1e6 AS off_by_ms
    FROM clock_offsets
    WHERE is_off
    UNION ALL
    SELECT run_id, capture_id, vantage_ip, 'it shares no time with the captures of any other host', gap_ns / 1e6
    FROM captures
    JOIN without_shared_time USING (run_id, vantage_ip)
)
SELECT run_id, capture_id, vantage_ip, problem, off_by_ms
FROM problems
ORDER BY run_id, capture_id, problem
