-- question: After how much payload do the pauses of a run's traffic, or of each pair's, recur?
-- subject: throughput
-- row: a pause of traffic_pauses, with the values of its unit
-- inputs: traffic_pauses
-- param: longest_step_s DOUBLE > 0 = 20; longest step that is searched for, s; epochs that end in a pause are longer
-- param: by_pair BIGINT = 0; as in traffic_pauses
-- column: run_id
-- column: pair
-- column: unit
-- column: window_ns
-- column: start_ns
-- column: end_ns
-- column: idle_ns ns; end_ns - start_ns
-- column: payload_before_bytes
-- column: mix_bytes bytes; the same, weighted by pairs (traffic_pauses)
-- column: step_bytes bytes; payload of a step of the unit; null where none recurs
-- column: recurrence ratio; part of the idle time that is matched by a pause one step payload later, beyond chance
-- column: pause_ns ns; usual length of a pause between steps: half of the matched idle time is in pauses at least as long
-- Autocorrelation of the pauses over the payload instead of over time: a synchronous step moves the same payload
-- through the same pairs every time, however long stragglers, timeouts and other work make it. The numbers that decide
-- are in `thresholds`.
-- The excerpt is the middle of the run, as much of it as has few enough long pauses, so that every step in it is
-- visible. It is the whole run, or a quarter, a sixteenth ... of its payload. A pause is matched by one with the same mix of
-- pairs; chance is what pauses at random places would match. Of the payloads that recur nearly as much as the best, the
-- smallest counts that recurs after its double too, where the excerpt is long enough to show that.
-- Where retransmissions make steps differ by half a percent, several together are clearer than one: of that payload,
-- the smallest fraction down to an eighth counts that recurs nearly as much, where the excerpt holds ten or more of the
-- whole.
WITH thresholds AS (
    SELECT 8 AS excerpt_levels,             -- the whole run, a quarter, ... : down to a 16,384th of its payload
           0.25 AS excerpt_factor,
           128 AS most_places_of_run,       -- in an excerpt: the time grows with the square
           64 AS most_places_of_pair,
           16 AS long_pauses,               -- a pause is long from half of the length of the 16th longest on
           4 AS most_stops,                 -- the longest pauses may be stops, not pauses between steps: a pause counts
           4 AS stop_divisor,               -- as a quarter of the 4th longest at most,
           4 AS most_long_times,            -- or as this many times a long one, if that is longer
           5000 AS places_per_excerpt,      -- pauses with less than this part of the payload between them are one
           400 AS bins_per_e,               -- bins of lags for a factor of e: 0.25% each
           277 AS bins_per_double,          -- ln(2) times as many
           0.01 AS mix_deviation,           -- of the mix between two pauses from the median of their lag, at most
           2.5 AS longest_lag_steps,        -- of longest_step_s: enough for two steps
           0.4 AS longest_lag_share,        -- of the excerpt: a longer lag comes too seldom to recur
           0.18 AS double_lag_share,        -- of the excerpt: from a lag up to this its double is visible, too
           0.8 AS nearly_best,              -- of the best recurrence: the smallest lag that recurs as much is the step
           0.6 AS double_recurrence,        -- of a step's own recurrence: that of its double, at least
           8 AS most_parts,                 -- of the clearest lag, where that is several steps
           0.02 AS part_deviation,          -- of a lag from a fraction of the clearest
           0.1 AS whole_share,              -- of the excerpt: a clearest lag up to this may be divided
           0.0075 AS lag_width,             -- three bins: the part of a lag within which a pause matches by chance
           0.04 AS part_width               -- the same of a fraction: twice its deviation
), pauses AS MATERIALIZED (
    FROM traffic_pauses(by_pair := $by_pair)
), sizes AS (
    SELECT unit, max(payload_before_bytes) AS run_bytes,
           CASE WHEN any_value(pair) IS NULL THEN any_value(most_places_of_run) ELSE any_value(most_places_of_pair) END AS most_places
    FROM pauses
    CROSS JOIN thresholds
    GROUP BY unit
), excerpts AS (  -- the pauses of each possible excerpt, the two ends of the run as pauses without length
    SELECT unit, level, run_bytes * excerpt_factor ** level AS excerpt_bytes, payload_before_bytes AS bytes, mix_bytes,
           coalesce(start_ns, end_ns) AS start_ns, coalesce(idle_ns, 0) AS idle_ns,
           row_number() OVER (PARTITION BY unit, level ORDER BY coalesce(idle_ns, 0) DESC, payload_before_bytes) AS place
    FROM pauses
    JOIN sizes USING (unit)
    CROSS JOIN thresholds
    CROSS JOIN range(excerpt_levels) AS levels(level)
    WHERE abs(payload_before_bytes - run_bytes / 2) <= run_bytes * excerpt_factor ** level / 2
), long_from AS (
    SELECT unit, level, min(idle_ns) FILTER (place <= long_pauses AND idle_ns > 0) / 2 AS long_ns,
           greatest(any_value(most_long_times) * long_ns,
                    min(idle_ns) FILTER (place <= most_stops AND idle_ns > 0) / any_value(stop_divisor)) AS most_ns
    FROM excerpts
    CROSS JOIN thresholds
    GROUP BY unit, level
), excerpt AS (
    SELECT unit, min(level) AS level, arg_min(most_ns, level) AS most_ns
    FROM (SELECT unit, level, any_value(most_ns) AS most_ns
          FROM excerpts
          JOIN long_from USING (unit, level)
          JOIN sizes USING (unit)
          GROUP BY unit, level
          HAVING count(*) FILTER (idle_ns >= long_ns) <= any_value(most_places))
    GROUP BY unit
), places AS (  -- pauses with next to nothing between them are one
    SELECT unit, any_value(excerpt_bytes) AS excerpt_bytes,
           arg_max(bytes, (idle_ns, -bytes)) AS bytes, arg_max(mix_bytes, (idle_ns, -bytes)) AS mix_bytes,
           arg_max(start_ns, (idle_ns, -bytes)) AS start_ns,
           -- an end of the run, or a stretch of minutes, is no more than a pause
           least(max(CASE WHEN bytes IN (0, run_bytes) THEN most_ns ELSE idle_ns END), any_value(most_ns)) AS idle_ns
    FROM excerpts
    JOIN excerpt USING (unit, level)
    JOIN sizes USING (unit)
    CROSS JOIN thresholds
    WHERE place <= most_places OR bytes IN (0, run_bytes)
    GROUP BY unit, round(bytes / excerpt_bytes * places_per_excerpt)
), lengths AS (
    SELECT DISTINCT unit, excerpt_bytes
    FROM places
), totals AS (
    SELECT unit, count(*) AS places, sum(idle_ns) AS idle_ns
    FROM places
    GROUP BY unit
), pairs AS (
    SELECT a.unit, a.bytes AS earlier, b.bytes AS later, b.bytes - a.bytes AS lag_bytes,
           (b.mix_bytes - a.mix_bytes) / (b.bytes - a.bytes) AS mix, least(a.idle_ns, b.idle_ns) AS idle_ns,
           b.start_ns - a.start_ns AS lag_ns,
           floor(ln(b.bytes - a.bytes) * bins_per_e)::BIGINT AS bin
    FROM places AS a
    JOIN places AS b ON b.unit = a.unit AND b.bytes > a.bytes
    CROSS JOIN thresholds
    WHERE lag_ns <= longest_lag_steps * $longest_step_s * 1e9
), lags AS (  -- a lag is known to a quarter of a percent: with those next to it, the pairs of one lag
    SELECT unit, bin + side AS bin, earlier, later, lag_bytes, lag_ns, mix, idle_ns
    FROM pairs
    JOIN lengths USING (unit)
    CROSS JOIN thresholds
    CROSS JOIN range(-1, 2) AS sides(side)
    WHERE lag_bytes <= (1 + part_deviation) * longest_lag_share * excerpt_bytes  -- no bin of a lag that may recur loses a pair
), alike AS (
    SELECT l.* EXCLUDE middle
    FROM (SELECT *, median(mix) OVER (PARTITION BY unit, bin) AS middle FROM lags) AS l
    CROSS JOIN thresholds
    WHERE abs(mix - middle) <= mix_deviation
), forwards AS (  -- a pause matches one other, even where several are near
    SELECT unit, bin, sum(idle_ns) AS idle_ns
    FROM (SELECT unit, bin, earlier, max(idle_ns) AS idle_ns FROM alike GROUP BY ALL)
    GROUP BY unit, bin
), backwards AS (
    SELECT unit, bin, sum(idle_ns) AS idle_ns
    FROM (SELECT unit, bin, later, max(idle_ns) AS idle_ns FROM alike GROUP BY ALL)
    GROUP BY unit, bin
), lag_size AS (
    SELECT unit, bin, median(lag_bytes) AS lag_bytes, median(lag_ns) AS lag_ns
    FROM alike
    GROUP BY unit, bin
), matched AS (
    SELECT unit, bin, lag_bytes, lag_ns,
           least(f.idle_ns, b.idle_ns) / nullif(t.idle_ns, 0) AS share,
           excerpt_bytes,
           1 - exp(-lag_width * places * lag_bytes / excerpt_bytes) AS by_chance
    FROM forwards AS f
    JOIN backwards AS b USING (unit, bin)
    JOIN lag_size AS s USING (unit, bin)
    JOIN totals AS t USING (unit)
    JOIN lengths USING (unit)
    CROSS JOIN thresholds
    WHERE lag_bytes <= longest_lag_share * excerpt_bytes
), recurring AS (
    SELECT unit, bin, lag_bytes, lag_ns <= $longest_step_s * 1e9 AS is_step,
           lag_bytes <= double_lag_share * excerpt_bytes AS is_twice_in_excerpt,
           (share - by_chance) / (1 - by_chance) AS recurrence
    FROM matched
    CROSS JOIN thresholds
), harmonics AS (  -- what recurs after a step recurs after two
    SELECT unit, bin, max(recurrence) OVER (PARTITION BY unit ORDER BY bin
                                            RANGE BETWEEN bins_per_double - 1 FOLLOWING AND bins_per_double + 2 FOLLOWING) AS recurrence
    FROM recurring
    CROSS JOIN thresholds
), clearest AS (
    SELECT unit, bin, lag_bytes AS step_bytes, r.recurrence
    FROM (SELECT *, max(recurrence) OVER (PARTITION BY unit) AS best FROM recurring WHERE is_step) AS r
    LEFT JOIN harmonics AS h USING (unit, bin)
    CROSS JOIN thresholds
    WHERE r.recurrence >= nearly_best * best AND (NOT is_twice_in_excerpt OR h.recurrence >= double_recurrence * r.recurrence)
    QUALIFY row_number() OVER (PARTITION BY unit ORDER BY lag_bytes, r.recurrence DESC, bin) = 1
), parts AS (  -- pairs that are the clearest payload or a fraction of it from each other
    SELECT unit, part, earlier, later, idle_ns
    FROM pairs
    JOIN clearest USING (unit)
    JOIN lengths USING (unit)
    CROSS JOIN thresholds
    CROSS JOIN range(1, most_parts + 1) AS fractions(part)
    WHERE abs(pairs.lag_bytes * part / step_bytes - 1) <= part_deviation
      AND (part = 1 OR step_bytes <= whole_share * excerpt_bytes)
), part_sums AS (
    SELECT unit, part, least(f.idle_ns, b.idle_ns) / totals.idle_ns AS share,
           1 - exp(-part_width * places * step_bytes / part / excerpt_bytes) AS by_chance
    FROM (SELECT unit, part, sum(idle_ns) AS idle_ns
          FROM (SELECT unit, part, earlier, max(idle_ns) AS idle_ns FROM parts GROUP BY ALL) GROUP BY ALL) AS f
    JOIN (SELECT unit, part, sum(idle_ns) AS idle_ns
          FROM (SELECT unit, part, later, max(idle_ns) AS idle_ns FROM parts GROUP BY ALL) GROUP BY ALL) AS b
        USING (unit, part)
    JOIN totals USING (unit)
    JOIN lengths USING (unit)
    JOIN clearest USING (unit)
    CROSS JOIN thresholds
), step_size AS (
    SELECT unit, bin, step_bytes / max(part) AS step_bytes, recurrence
    FROM (SELECT unit, part, (share - by_chance) / (1 - by_chance) AS part_recurrence,
                 max(part_recurrence) FILTER (part = 1) OVER (PARTITION BY unit) AS whole_recurrence
          FROM part_sums)
    JOIN clearest USING (unit)
    CROSS JOIN thresholds
    WHERE part = 1 OR part_recurrence >= nearly_best * whole_recurrence
    GROUP BY unit, bin, step_bytes, recurrence
), usual AS (  -- half of the matched idle time is in pauses at least as long
    SELECT unit, max(idle_ns) AS pause_ns
    FROM (SELECT unit, idle_ns, sum(idle_ns) OVER (PARTITION BY unit ORDER BY idle_ns DESC) AS added_ns,
                 sum(idle_ns) OVER (PARTITION BY unit) AS all_ns
          FROM alike
          SEMI JOIN clearest USING (unit, bin))
    WHERE added_ns >= all_ns / 2
    GROUP BY unit
)
SELECT run_id, pair, unit, window_ns, start_ns, end_ns, idle_ns, payload_before_bytes, mix_bytes,
       step_bytes, recurrence, pause_ns::DOUBLE AS pause_ns
FROM pauses
LEFT JOIN step_size USING (unit)
LEFT JOIN usual USING (unit)
ORDER BY unit, payload_before_bytes
