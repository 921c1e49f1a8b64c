-- question: Which training steps does the traffic show, without any log?
-- row: a run and a step; one row with structured false and nothing else for a run whose traffic shows none
-- inputs: runs, pause_recurrence
-- param: longest_step_s DOUBLE > 0 = 20; longest step that is searched for, s; epochs that end in a pause are longer
-- column: run_id; run
-- column: structured; whether the traffic shows steps
-- column: step; number of the step in the traffic, from 0
-- column: start_ns ns since the epoch, UTC; begin of the first base window with training traffic in the step
-- column: end_ns ns since the epoch, UTC; end of the last one: comparable to a log's time stamp
-- column: payload_bytes bytes; payload of the training traffic in the step
-- column: pause_before_ms ms; length of the pause before the step; null where the traffic begins with it
-- column: period_ms ms; from the end of the step before to this one's end; null for the first
-- column: confidence share; confidence in the steps of the run, the same for all of them
-- A step is a stretch between two pauses in which the training traffic moves the payload that recurs (pause_recurrence)
-- through the same pairs. Pauses with next to no payload between them (control messages) are one. A comb of nine teeth
-- finds the pauses that end steps: those where much time passes here, and one to four steps' payload before and after.
-- So pauses inside a step, a timeout among them, are no boundaries, and start-up broadcast and tear-down are no steps.
-- No table of logs or phases is read; the numbers that decide are in `thresholds`.
-- confidence is the geometric mean of the share of the training traffic that is in steps, of how equal their payloads
-- are (1 less the mean deviation over its limit), and of how clearly pauses stand out (a step's last pause against the
-- sum of that and the longest pause inside it, on average).
-- Asynchronous training moves its payload through other pairs each time; where it is joined every few steps, those
-- rounds are the steps. Steps whose payload differs much from one to the next are not found.
WITH thresholds AS (
    SELECT 2000 AS least_pieces,            -- pauses with less than a step's payload over this between them are one
           100 AS bins_per_step,            -- of a step's payload, which is known to a hundredth or so
           4 AS teeth_each_way,             -- of the comb: so many steps before and after must end in a pause, too
           94 AS bins_between,              -- least distance of two boundaries: a step less 6%
           0.05 AS payload_deviation,       -- of a step's payload from the recurring one, at most
           0.02 AS mix_deviation,           -- of a step's mix from the usual one, at most
           3 AS least_steps,                -- a run with fewer has no structure,
           2 / 3 AS least_share_in_steps,   -- nor one with less of its training traffic in steps
           0.15 AS least_recurrence         -- or less of its idle time that recurs
), counted AS (
    SELECT *, payload_before_bytes - lag(payload_before_bytes, 1, -step_bytes) OVER (
                  PARTITION BY run_id ORDER BY payload_before_bytes) > step_bytes / (SELECT least_pieces FROM thresholds) AS is_new
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
           floor(min(payload_before_bytes) / any_value(step_bytes) * any_value(bins_per_step))::BIGINT AS bin
    FROM numbered
    CROSS JOIN thresholds
    GROUP BY run_id, number
), bins AS (
    SELECT run_id, bin, arg_max(number, (idle_ns, -number)) AS number, max(idle_ns) AS longest_ns,
           least(sum(idle_ns), any_value(pause_ns)) AS idle_ns
    FROM pauses
    GROUP BY run_id, bin
), teeth AS (  -- with the bins next to it
    SELECT run_id, bin, max(idle_ns) OVER (
               PARTITION BY run_id ORDER BY bin RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS idle_ns
    FROM bins
), comb AS (
    SELECT bins.run_id, bins.bin, any_value(number) AS number, any_value(longest_ns) AS longest_ns,
           sum(teeth.idle_ns) AS score
    FROM bins
    CROSS JOIN thresholds
    CROSS JOIN range(-teeth_each_way, teeth_each_way + 1) AS places(place)
    JOIN teeth ON teeth.run_id = bins.run_id AND teeth.bin = bins.bin + bins_per_step * place
    GROUP BY bins.run_id, bins.bin
), boundaries AS (  -- the best within a step's payload to either side
    SELECT run_id, number
    FROM comb
    CROSS JOIN thresholds
    QUALIFY (score, longest_ns, -bin) = max((score, longest_ns, -bin)) OVER (
                PARTITION BY run_id ORDER BY bin RANGE BETWEEN bins_between PRECEDING AND bins_between FOLLOWING)
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
    CROSS JOIN thresholds
    WHERE abs(payload_bytes / step_bytes - 1) <= payload_deviation
), found AS (
    SELECT *, row_number() OVER (PARTITION BY run_id ORDER BY end_ns) - 1 AS step
    FROM alike
    WHERE abs(mix - usual_mix) <= mix_deviation
), judged AS (
    SELECT run_id, count(*) AS steps, any_value(recurrence) AS recurrence,
           sum(payload_bytes) / any_value(run_bytes) AS share_in_steps,
           greatest(1 - avg(abs(payload_bytes / mean_bytes - 1)) / any_value(payload_deviation), 0) AS alikeness,
           avg(last_pause_ns / (last_pause_ns + inner_ns)) AS clearness
    FROM (SELECT *, avg(payload_bytes) OVER (PARTITION BY run_id) AS mean_bytes FROM found)
    JOIN (SELECT run_id, max(bytes) AS run_bytes FROM pauses GROUP BY run_id) USING (run_id)
    GROUP BY run_id
), structured AS (
    SELECT run_id, cbrt(share_in_steps * alikeness * clearness) AS confidence
    FROM judged
    CROSS JOIN thresholds
    WHERE steps >= least_steps AND share_in_steps >= least_share_in_steps AND recurrence >= least_recurrence
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
