-- question: Which runs have hosts whose clocks differ, and by how much must their captures be shifted?
-- subject: runs
-- row: a run, and a host as reference, of two hosts whose clocks differ by more than uncertainty and margin
-- inputs: clock_offsets, hosts
-- answer: ahead_ip, behind_ip, difference_ms, problem
-- column: run_id from clock_offsets
-- column: clock_reference_ip from clock_offsets
-- column: ahead_ip; address of the captured host whose clock is most ahead
-- column: behind_ip; address of the one whose clock is most behind
-- column: difference_ms ms; between these two clocks
-- column: tolerance_ms ms; what it may be: the margin of an offset (clock_offsets) and the uncertainties of both
-- column: problem; the finding in words, with the shift of each capture that is more than 2.5 ms off the median clock, for editcap -t
WITH offsets AS (  -- files of one host share its clock
    SELECT o.run_id, clock_reference_ip, vantage_ip AS host_ip, coalesce(any_value(label), vantage_ip) AS host,
           any_value(clock_offset_ns) AS offset_ns, any_value(clock_offset_uncertainty_ns) AS uncertainty_ns, any_value(margin_ns) AS margin_ns
    FROM clock_offsets AS o
    LEFT JOIN hosts AS h ON h.run_id = o.run_id AND h.host_ip = vantage_ip
    WHERE vantage_ip IS NOT NULL
    GROUP BY o.run_id, clock_reference_ip, vantage_ip
), shifted AS (
    SELECT *, (quantile_disc(offset_ns, 0.5) OVER (PARTITION BY run_id, clock_reference_ip) - offset_ns) / 1e9 AS shift_s
    FROM offsets
), ends AS (
    SELECT run_id, clock_reference_ip, first(o ORDER BY offset_ns DESC, host_ip) AS ahead, first(o ORDER BY offset_ns, host_ip) AS behind,
           list(format('editcap -t {} for {}', rtrim(rtrim(format('{:.6f}', shift_s), '0'), '.'), host) ORDER BY host_ip)
               FILTER (abs(shift_s) > least_shift_s) AS shifts
    FROM shifted AS o
    CROSS JOIN (SELECT 0.0025 AS least_shift_s)
    GROUP BY run_id, clock_reference_ip
), compared AS (
    SELECT *, (ahead.offset_ns - behind.offset_ns) / 1e6 AS difference_ms,
           (greatest(ahead.margin_ns, behind.margin_ns) + coalesce(ahead.uncertainty_ns + behind.uncertainty_ns, 0)) / 1e6 AS tolerance_ms
    FROM ends
)
SELECT run_id, clock_reference_ip, ahead.host_ip AS ahead_ip, behind.host_ip AS behind_ip, difference_ms, tolerance_ms,
       format('The clocks of {} and {} differ by {} ms (check host_clock): times between hosts are wrong by up to that, and so may be which host is '
              'late, and what it costs. Shift the captures ({}{}) and ingest them again.', ahead.host, behind.host,
              format(CASE WHEN difference_ms < 100 THEN '{:.3g}' ELSE '{:.0f}' END, difference_ms), array_to_string(shifts[:most_shifts], ', '),
              CASE WHEN len(shifts) > most_shifts THEN format(' and {} more', len(shifts) - most_shifts) ELSE '' END) AS problem
FROM compared
CROSS JOIN (SELECT 3 AS most_shifts)
WHERE difference_ms > tolerance_ms
ORDER BY run_id, clock_reference_ip
