-- question: After how much payload do the pauses of a run's traffic come again?
-- row: a pause of traffic_pauses, with what holds for its run
-- inputs: traffic_pauses
-- param: longest_step_s DOUBLE > 0 = 20; longest step that is looked for, s; epochs that end in a pause are longer
-- Autocorrelation of the pauses over the payload instead of over time: a synchronous step moves the same payload through
-- the same pairs every time, however long stragglers, timeouts and other work make it.
-- The excerpt is the middle of the run, as much of it as has at most 128 long pauses (half as long as the 16th and more), so
-- that every step in it can be seen: the whole run, or a quarter, a sixteenth ... of its payload.
-- recurrence is the part of the idle time in the excerpt that is matched by a pause one step payload later, with the same mix of
-- pairs, beyond what pauses strewn at random would match; of payloads with at least 0.8 of the best, the
-- smallest counts that recurs after its double too (0.6 of it, where the excerpt is long enough to see that).
-- Where retransmissions make steps differ by half a percent, several together are clearer than one: of that payload, the
-- smallest fraction down to an eighth counts that recurs as much (0.8) give or take 2%, where the
-- excerpt holds 10 of the whole or more.
WITH pauses AS MATERIALIZED (
    FROM traffic_pauses
), sizes AS (
    SELECT run_id, max(payload_before_bytes) AS run_bytes
    FROM pauses
    GROUP BY run_id
), excerpts AS (  -- the pauses of each possible excerpt, the two ends of the run as pauses without length
    SELECT run_id, level, run_bytes * 0.25 ** level AS excerpt_bytes, payload_before_bytes AS bytes, mix_bytes,
           coalesce(start_ns, end_ns) AS start_ns, coalesce(idle_ns, 0) AS idle_ns,
           row_number() OVER (PARTITION BY run_id, level ORDER BY coalesce(idle_ns, 0) DESC, payload_before_bytes) AS place
    FROM pauses
    JOIN sizes USING (run_id)
    CROSS JOIN range(8) AS levels(level)
    WHERE abs(payload_before_bytes - run_bytes / 2) <= run_bytes * 0.25 ** level / 2
), long_from AS (
    SELECT run_id, level, min(idle_ns) FILTER (place <= 16 AND idle_ns > 0) / 2 AS long_ns,
           greatest(4 * long_ns, min(idle_ns) FILTER (place <= 4 AND idle_ns > 0) / 4) AS most_ns
    FROM excerpts
    GROUP BY run_id, level
), excerpt AS (
    SELECT run_id, min(level) AS level, arg_min(most_ns, level) AS most_ns
    FROM (SELECT run_id, level, any_value(most_ns) AS most_ns
          FROM excerpts
          JOIN long_from USING (run_id, level)
          GROUP BY run_id, level
          HAVING count(*) FILTER (idle_ns >= long_ns) <= 128)
    GROUP BY run_id
), places AS (  -- pauses with next to nothing between them are one
    SELECT run_id, any_value(excerpt_bytes) AS excerpt_bytes,
           arg_max(bytes, idle_ns) AS bytes, arg_max(mix_bytes, idle_ns) AS mix_bytes, arg_max(start_ns, idle_ns) AS start_ns,
           -- an end of the run, or a stretch of minutes, is no more than a pause
           least(max(CASE WHEN bytes IN (0, run_bytes) THEN most_ns ELSE idle_ns END), any_value(most_ns)) AS idle_ns
    FROM excerpts
    JOIN excerpt USING (run_id, level)
    JOIN sizes USING (run_id)
    WHERE place <= 128 OR bytes IN (0, run_bytes)
    GROUP BY run_id, round(bytes / excerpt_bytes * 5000)
), lengths AS (
    SELECT DISTINCT run_id, excerpt_bytes
    FROM places
), totals AS (
    SELECT run_id, count(*) AS places, sum(idle_ns) AS idle_ns
    FROM places
    GROUP BY run_id
), pairs AS (
    SELECT a.run_id, a.bytes AS earlier, b.bytes AS later, b.bytes - a.bytes AS lag_bytes,
           (b.mix_bytes - a.mix_bytes) / (b.bytes - a.bytes) AS mix, least(a.idle_ns, b.idle_ns) AS idle_ns,
           b.start_ns - a.start_ns AS lag_ns,
           floor(ln(b.bytes - a.bytes) * 400)::BIGINT AS bin
    FROM places AS a
    JOIN places AS b ON b.run_id = a.run_id AND b.bytes > a.bytes
    WHERE lag_ns <= 2.5 * $longest_step_s * 1e9  -- room for two steps
), lags AS (  -- a lag is known to a quarter of a percent: with those next to it, the pairs of one lag
    SELECT run_id, bin + side AS bin, earlier, later, lag_bytes, lag_ns, mix, idle_ns
    FROM pairs
    CROSS JOIN range(-1, 2) AS sides(side)
), middle AS (
    SELECT run_id, bin, median(mix) AS mix
    FROM lags
    GROUP BY run_id, bin
), alike AS (
    SELECT lags.* EXCLUDE mix
    FROM lags
    JOIN middle USING (run_id, bin)
    WHERE abs(lags.mix - middle.mix) <= 0.01
), forwards AS (  -- a pause matches one other, be there several near
    SELECT run_id, bin, sum(idle_ns) AS idle_ns
    FROM (SELECT run_id, bin, earlier, max(idle_ns) AS idle_ns FROM alike GROUP BY ALL)
    GROUP BY run_id, bin
), backwards AS (
    SELECT run_id, bin, sum(idle_ns) AS idle_ns
    FROM (SELECT run_id, bin, later, max(idle_ns) AS idle_ns FROM alike GROUP BY ALL)
    GROUP BY run_id, bin
), lag_size AS (
    SELECT run_id, bin, median(lag_bytes) AS lag_bytes, median(lag_ns) AS lag_ns
    FROM alike
    GROUP BY run_id, bin
), matched AS (
    SELECT run_id, bin, lag_bytes, lag_ns,
           least(f.idle_ns, b.idle_ns) / nullif(t.idle_ns, 0) AS share,
           excerpt_bytes,
           1 - exp(-0.0075 * places * lag_bytes / excerpt_bytes) AS by_chance
    FROM forwards AS f
    JOIN backwards AS b USING (run_id, bin)
    JOIN lag_size AS s USING (run_id, bin)
    JOIN totals AS t USING (run_id)
    JOIN lengths USING (run_id)
    WHERE lag_bytes <= 0.4 * excerpt_bytes
), recurring AS (
    SELECT run_id, bin, lag_bytes, lag_ns <= $longest_step_s * 1e9 AS is_step, lag_bytes <= 0.18 * excerpt_bytes AS is_twice_seen,
           (share - by_chance) / (1 - by_chance) AS recurrence
    FROM matched
), harmonics AS (  -- what comes again after a step comes again after two
    SELECT a.run_id, a.bin, max(b.recurrence) AS recurrence
    FROM recurring AS a
    JOIN recurring AS b ON b.run_id = a.run_id AND b.bin BETWEEN a.bin + 276 AND a.bin + 279
    GROUP BY a.run_id, a.bin
), clearest AS (
    SELECT run_id, bin, lag_bytes AS step_bytes, r.recurrence
    FROM (SELECT *, max(recurrence) OVER (PARTITION BY run_id) AS best FROM recurring WHERE is_step) AS r
    LEFT JOIN harmonics AS h USING (run_id, bin)
    WHERE r.recurrence >= 0.8 * best AND (NOT is_twice_seen OR h.recurrence >= 0.6 * r.recurrence)
    QUALIFY row_number() OVER (PARTITION BY run_id ORDER BY lag_bytes, r.recurrence DESC) = 1
), parts AS (  -- pairs that are the clearest payload or a fraction of it apart, give or take 2%
    SELECT run_id, part, earlier, later, idle_ns
    FROM pairs
    JOIN clearest USING (run_id)
    JOIN lengths USING (run_id)
    JOIN range(1, 9) AS fractions(part)
      ON abs(pairs.lag_bytes * part / step_bytes - 1) <= 0.02 AND (part = 1 OR step_bytes <= 0.1 * excerpt_bytes)
), part_sums AS (
    SELECT run_id, part, least(f.idle_ns, b.idle_ns) / totals.idle_ns AS share,
           1 - exp(-0.04 * places * step_bytes / part / excerpt_bytes) AS by_chance
    FROM (SELECT run_id, part, sum(idle_ns) AS idle_ns
          FROM (SELECT run_id, part, earlier, max(idle_ns) AS idle_ns FROM parts GROUP BY ALL) GROUP BY ALL) AS f
    JOIN (SELECT run_id, part, sum(idle_ns) AS idle_ns
          FROM (SELECT run_id, part, later, max(idle_ns) AS idle_ns FROM parts GROUP BY ALL) GROUP BY ALL) AS b
        USING (run_id, part)
    JOIN totals USING (run_id)
    JOIN lengths USING (run_id)
    JOIN clearest USING (run_id)
), step_size AS (
    SELECT run_id, bin, step_bytes / max(part) AS step_bytes, recurrence
    FROM (SELECT run_id, part, (share - by_chance) / (1 - by_chance) AS part_recurrence,
                 max(part_recurrence) FILTER (part = 1) OVER (PARTITION BY run_id) AS whole_recurrence
          FROM part_sums)
    JOIN clearest USING (run_id)
    WHERE part = 1 OR part_recurrence >= 0.8 * whole_recurrence
    GROUP BY run_id, bin, step_bytes, recurrence
), usual AS (  -- half of the matched idle time is in pauses at least as long
    SELECT run_id, max(idle_ns) AS pause_ns
    FROM (SELECT run_id, idle_ns, sum(idle_ns) OVER (PARTITION BY run_id ORDER BY idle_ns DESC) AS added_ns,
                 sum(idle_ns) OVER (PARTITION BY run_id) AS all_ns
          FROM alike
          SEMI JOIN clearest USING (run_id, bin))
    WHERE added_ns >= all_ns / 2
    GROUP BY run_id
)
SELECT run_id, window_ns, start_ns, end_ns, idle_ns, payload_before_bytes, mix_bytes,
       step_bytes, recurrence, pause_ns::DOUBLE AS pause_ns
FROM pauses
LEFT JOIN step_size USING (run_id)
LEFT JOIN usual USING (run_id)
ORDER BY run_id, payload_before_bytes
