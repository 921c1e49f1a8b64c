-- question: Which training steps does the traffic show, without any log?
-- row: a run and a step; one row with structured false and nothing else for a run whose traffic shows none
-- inputs: runs, pause_recurrence
-- param: longest_step_s DOUBLE > 0 = 20; longest step that is looked for, s; epochs that end in a pause are longer
-- A step is a stretch between two pauses in which the training traffic moves the payload that recurs (pause_recurrence,
-- give or take 5%) through the same pairs (mix within 0.02). Pauses with next to nothing between them (1/2,000 of a step:
-- control messages) are one. Which pauses end steps, a comb of nine teeth finds: those where much time passes here, and
-- one to four steps' payload before and after. So pauses inside a step, a timeout among them, are no boundaries, and
-- start-up broadcast and tear-down are no steps. No table of logs or phases is read.
-- start_ns is the begin of the first base window with training traffic in the step, end_ns the end of the last: what is
-- compared with a log's time stamps. period_ms runs from the end of the step before.
-- confidence is, of the run, the geometric mean of the part of the training traffic that is in steps, of how alike their
-- payloads are (1 less the mean deviation over 5%), and of how clearly pauses stand out (a step's last pause against that
-- and the longest inside it, on average).
-- A run has structure when it has 3 steps or more, at least two thirds of the training traffic are in steps, and 0.15 of the idle
-- time recurs. Asynchronous training moves its payload through other pairs each time; where it is joined every few steps,
-- those rounds are the steps. Steps whose payload differs much from one to the next are not found.
WITH counted AS (
    SELECT *, payload_before_bytes - lag(payload_before_bytes, 1, -step_bytes) OVER (
                  PARTITION BY run_id ORDER BY payload_before_bytes) > step_bytes / 2000 AS is_new
    FROM pause_recurrence(longest_step_s := $longest_step_s)
    WHERE step_bytes > 0
), numbered AS (
    SELECT *, count(*) FILTER (is_new) OVER (PARTITION BY run_id ORDER BY payload_before_bytes) AS number
    FROM counted
), pauses AS MATERIALIZED (
    SELECT run_id, number, any_value(step_bytes) AS step_bytes, any_value(recurrence) AS recurrence,
           any_value(pause_ns) AS pause_ns, min(start_ns) AS start_ns, max(end_ns) AS end_ns,
           sum(coalesce(idle_ns, pause_ns)) AS idle_ns,  -- the run's begin and end are as good as a pause
           min(payload_before_bytes) AS bytes, arg_min(mix_bytes, payload_before_bytes) AS mix_bytes,
           floor(min(payload_before_bytes) / any_value(step_bytes) * 100)::BIGINT AS bin
    FROM numbered
    GROUP BY run_id, number
), bins AS (
    SELECT run_id, bin, arg_max(number, (idle_ns, -number)) AS number, max(idle_ns) AS longest_ns,
           least(sum(idle_ns), any_value(pause_ns)) AS idle_ns
    FROM pauses
    GROUP BY run_id, bin
), teeth AS (  -- a step's payload is known to a hundredth or so
    SELECT run_id, bin, max(idle_ns) OVER (
               PARTITION BY run_id ORDER BY bin RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS idle_ns
    FROM bins
), comb AS (
    SELECT bins.run_id, bins.bin, any_value(number) AS number, any_value(longest_ns) AS longest_ns,
           sum(teeth.idle_ns) AS score
    FROM bins
    CROSS JOIN range(-4, 5) AS places(place)
    JOIN teeth ON teeth.run_id = bins.run_id AND teeth.bin = bins.bin + 100 * place
    GROUP BY bins.run_id, bins.bin
), boundaries AS (  -- the best within a step's payload to either side
    SELECT run_id, number
    FROM comb
    QUALIFY (score, longest_ns, -bin) = max((score, longest_ns, -bin)) OVER (
                PARTITION BY run_id ORDER BY bin RANGE BETWEEN 94 PRECEDING AND 94 FOLLOWING)
), placed AS (
    SELECT pauses.*, boundaries.number IS NOT NULL AS is_boundary,
           count(boundaries.number) OVER (PARTITION BY run_id ORDER BY pauses.number) AS stretch
    FROM pauses
    LEFT JOIN boundaries USING (run_id, number)
), edges AS (  -- a stretch begins with its boundary
    SELECT run_id, stretch, any_value(step_bytes) AS step_bytes, any_value(recurrence) AS recurrence,
           max(start_ns) FILTER (is_boundary) AS pause_start_ns, max(end_ns) FILTER (is_boundary) AS start_ns,
           max(idle_ns) FILTER (is_boundary) AS pause_ns, max(bytes) FILTER (is_boundary) AS bytes,
           max(mix_bytes) FILTER (is_boundary) AS mix_bytes,
           coalesce(max(idle_ns) FILTER (NOT is_boundary), 0) AS inner_ns
    FROM placed
    GROUP BY run_id, stretch
), stretches AS (
    SELECT run_id, step_bytes, recurrence, pause_start_ns, start_ns, pause_ns, inner_ns,
           lead(pause_start_ns) OVER in_time AS end_ns, lead(pause_ns) OVER in_time AS last_pause_ns,
           lead(bytes) OVER in_time - bytes AS payload_bytes,
           (lead(mix_bytes) OVER in_time - mix_bytes) / payload_bytes AS mix
    FROM edges
    WHERE stretch > 0
    WINDOW in_time AS (PARTITION BY run_id ORDER BY stretch)
), alike AS (
    SELECT *, median(mix) OVER (PARTITION BY run_id) AS usual_mix
    FROM stretches
    WHERE abs(payload_bytes / step_bytes - 1) <= 0.05
), found AS (
    SELECT *, row_number() OVER (PARTITION BY run_id ORDER BY end_ns) - 1 AS step
    FROM alike
    WHERE abs(mix - usual_mix) <= 0.02
), judged AS (
    SELECT run_id, count(*) AS steps, any_value(recurrence) AS recurrence,
           sum(payload_bytes) / any_value(run_bytes) AS share_in_steps,
           greatest(1 - avg(abs(payload_bytes / mean_bytes - 1)) / 0.05, 0) AS alikeness,
           avg(last_pause_ns / (last_pause_ns + inner_ns)) AS clearness
    FROM (SELECT *, avg(payload_bytes) OVER (PARTITION BY run_id) AS mean_bytes FROM found)
    JOIN (SELECT run_id, max(bytes) AS run_bytes FROM pauses GROUP BY run_id) USING (run_id)
    GROUP BY run_id
), structured AS (
    SELECT run_id, cbrt(share_in_steps * alikeness * clearness) AS confidence
    FROM judged
    WHERE steps >= 3 AND share_in_steps >= 2 / 3 AND recurrence >= 0.15
)
SELECT runs.run_id, confidence IS NOT NULL AS structured, step::BIGINT AS step, start_ns, end_ns,
       payload_bytes::BIGINT AS payload_bytes,
       (start_ns - pause_start_ns) / 1e6 AS pause_before_ms,
       (end_ns - lag(end_ns) OVER (PARTITION BY runs.run_id ORDER BY step)) / 1e6 AS period_ms,
       confidence
FROM runs
LEFT JOIN structured USING (run_id)
LEFT JOIN found ON found.run_id = structured.run_id
ORDER BY runs.run_id, step
