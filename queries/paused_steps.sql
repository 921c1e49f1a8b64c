-- question: Which steps do the pauses of a run's traffic, or of each pair's, show?
-- subject: steps
-- row: a run (by_pair: and a directed pair of hosts) and a step; none where the pauses show no steps
-- inputs: pause_recurrence, flow_windows, training_flows
-- param: longest_step_s DOUBLE > 0 = 20; as in inferred_steps
-- param: by_pair BIGINT = 0; as in traffic_pauses
-- column: run_id
-- column: pair from pause_recurrence
-- column: step; number of the step in the traffic of the run or of the pair, from 0
-- column: steps_after steps; how many steps' payload follow this step in the traffic of the run or of the pair
-- column: start_ns ns since the epoch, UTC; start of the first base window with training traffic in the step
-- column: end_ns ns since the epoch, UTC; end of the last one
-- column: payload_bytes bytes; payload of the training traffic in the step
-- column: pause_before_ms ms; length of the pause before the step; null where the traffic begins with it
-- column: confidence share; confidence in the steps of the run or of the pair, the same for all of them
-- A step is a stretch between two pauses in which the training traffic moves the payload that recurs (pause_recurrence)
-- through the same pairs. Pauses with next to no payload between them (control messages) are one. A comb of nine teeth
-- finds the pauses that end steps: those where much time passes here, and one to four steps' payload before and after.
-- So pauses inside a step, a timeout among them, are no boundaries, and start-up broadcast and tear-down are no steps.
-- Where a worker begins a step while others still send the one before, no pause ends it: a stretch of several steps'
-- payload is divided where the last flow has sent its part, at the flow's own pause. Then start_ns is the end of the step
-- before, and pause_before_ms is 0.
-- confidence is the geometric mean of the share of the training traffic that is in steps, of how equal their payloads
-- are (1 less the mean deviation over its limit), and of how clearly pauses stand out (a step's last pause against the
-- sum of that and the longest pause inside it, on average). The numbers that decide are in `thresholds`.
WITH thresholds AS (
    SELECT 2000 AS least_pieces,            -- pauses with less than a step's payload over this between them are one
           100 AS bins_per_step,            -- of a step's payload, which is known to a hundredth or so
           4 AS teeth_each_way,             -- of the comb: so many steps before and after must end in a pause, too
           0.5 AS late_share,              -- of the usual pause: what is sent before so long a rest of a pause ends the step
           256 AS late_bytes,              -- and what is no message of control only
           94 AS bins_between,              -- least distance of two boundaries: a step less 6%
           0.05 AS payload_deviation,       -- of a step's payload from the recurring one, at most
           0.02 AS mix_deviation,           -- of a step's mix from the usual one, at most
           4 AS most_parts,                 -- steps without a pause between them that are divided
           0.1 AS flow_deviation,           -- of a step's payload of a flow: the pause that ends its part is so near
           1_000_000_000 AS cell_ns,        -- windows find their stretch by such a cell of time,
           3 AS least_steps,                -- a run with fewer has no structure,
           2 / 3 AS least_share_in_steps,   -- nor one with less of its training traffic in steps that end in a pause
           0.15 AS least_recurrence         -- or less of its idle time that recurs
), counted AS (
    SELECT *, payload_before_bytes - coalesce(lag(payload_before_bytes) OVER (
                  PARTITION BY unit ORDER BY payload_before_bytes), -step_bytes)::DOUBLE AS piece_bytes,
           piece_bytes > step_bytes / (SELECT least_pieces FROM thresholds) AS is_new
    FROM pause_recurrence(longest_step_s := $longest_step_s, by_pair := $by_pair)
    WHERE step_bytes > 0
), units AS (
    SELECT DISTINCT unit, run_id, pair
    FROM counted
), numbered AS (
    SELECT *, count(*) FILTER (is_new) OVER (PARTITION BY unit ORDER BY payload_before_bytes) AS number
    FROM counted
), pauses AS MATERIALIZED (
    SELECT unit, number, any_value(step_bytes) AS step_bytes, any_value(recurrence) AS recurrence,
           any_value(pause_ns) AS pause_ns, max(end_ns) AS end_ns,
           coalesce(max(start_ns) FILTER (idle_ns >= late_share * pause_ns AND piece_bytes >= late_bytes), min(start_ns)) AS start_ns,
           sum(coalesce(idle_ns, pause_ns)) AS idle_ns,  -- the run's start and end are as good as a pause
           min(payload_before_bytes) AS bytes, arg_min(mix_bytes, payload_before_bytes) AS mix_bytes,
           floor(min(payload_before_bytes) / any_value(step_bytes) * any_value(bins_per_step))::BIGINT AS bin
    FROM numbered
    CROSS JOIN thresholds
    GROUP BY unit, number
), bins AS (
    SELECT unit, bin, arg_max(number, (idle_ns, -number)) AS number, max(idle_ns) AS longest_ns,
           least(sum(idle_ns), any_value(pause_ns)) AS idle_ns
    FROM pauses
    GROUP BY unit, bin
), teeth AS (  -- the longest pause within a bin of each tooth
    SELECT bins.unit, bins.bin, place, max(found.idle_ns) AS idle_ns
    FROM bins
    CROSS JOIN thresholds
    CROSS JOIN range(-teeth_each_way, teeth_each_way + 1) AS places(place)
    CROSS JOIN range(-1, 2) AS sides(side)
    JOIN bins AS found ON found.unit = bins.unit AND found.bin = bins.bin + bins_per_step * place + side
    GROUP BY bins.unit, bins.bin, place
), comb AS (
    SELECT unit, bin, any_value(number) AS number, any_value(longest_ns) AS longest_ns, sum(teeth.idle_ns) AS score
    FROM bins
    JOIN teeth USING (unit, bin)
    GROUP BY unit, bin
), boundaries AS (  -- the best within a step's payload to either side
    SELECT unit, number
    FROM comb
    CROSS JOIN thresholds
    QUALIFY (score, longest_ns, -bin) = max((score, longest_ns, -bin)) OVER (
                PARTITION BY unit ORDER BY bin RANGE BETWEEN bins_between PRECEDING AND bins_between FOLLOWING)
), placed AS (
    SELECT pauses.*, boundaries.number IS NOT NULL AS is_boundary,
           count(boundaries.number) OVER (PARTITION BY unit ORDER BY pauses.number) AS stretch
    FROM pauses
    LEFT JOIN boundaries USING (unit, number)
), edges AS (  -- a stretch begins with its boundary
    SELECT unit, stretch, any_value(step_bytes) AS step_bytes, any_value(recurrence) AS recurrence,
           max(start_ns) FILTER (is_boundary) AS pause_start_ns, max(end_ns) FILTER (is_boundary) AS start_ns,
           max(idle_ns) FILTER (is_boundary) AS pause_ns, max(bytes) FILTER (is_boundary) AS bytes,
           max(mix_bytes) FILTER (is_boundary) AS mix_bytes,
           coalesce(max(idle_ns) FILTER (NOT is_boundary), 0) AS inner_ns
    FROM placed
    GROUP BY unit, stretch
), stretches AS (
    SELECT unit, stretch, 0 AS part, step_bytes, recurrence, pause_start_ns, start_ns, pause_ns, inner_ns,
           lead(pause_start_ns) OVER in_time AS end_ns, lead(pause_ns) OVER in_time AS last_pause_ns,
           lead(bytes) OVER in_time - bytes AS payload_bytes, lead(bytes) OVER in_time AS bytes_at_end,
           (lead(mix_bytes) OVER in_time - mix_bytes) / payload_bytes AS mix
    FROM edges
    WHERE stretch > 0
    WINDOW in_time AS (PARTITION BY unit ORDER BY stretch)
), sized AS (
    SELECT *, median(mix) FILTER (abs(payload_bytes / step_bytes - 1) <= payload_deviation) OVER (PARTITION BY unit) AS usual_mix,
           round(payload_bytes / step_bytes)::BIGINT AS parts
    FROM stretches
    CROSS JOIN thresholds
), alike AS MATERIALIZED (
    SELECT *
    FROM sized
    WHERE parts BETWEEN 1 AND most_parts AND abs(payload_bytes / step_bytes - parts) <= payload_deviation
      AND abs(mix - usual_mix) <= mix_deviation
), joined AS (  -- several steps without a pause between them
    SELECT unit, stretch, parts, start_ns, end_ns, unnest(range(start_ns // cell_ns, end_ns // cell_ns + 1)) AS cell
    FROM alike
    WHERE parts > 1
), joined_windows AS (
    SELECT unit, stretch, flow_id, parts, window_start_ns + window_ns AS sent_ns,
           lead(window_start_ns) OVER in_time - sent_ns AS idle_ns,
           sum(payload_bytes) OVER in_time AS sent_bytes,
           sum(payload_bytes) OVER (PARTITION BY unit, stretch, flow_id) AS all_bytes
    FROM flow_windows
    JOIN training_flows AS t USING (run_id, flow_id)
    JOIN units AS u ON u.run_id = t.run_id AND (u.pair IS NULL OR u.pair = t.pair)
    JOIN joined USING (unit)
    CROSS JOIN thresholds
    WHERE payload_bytes > 0 AND (packets IS NULL OR payload_bytes >= packets * least_mean_bytes)
      AND cell = window_start_ns // cell_ns AND window_start_ns >= start_ns AND window_start_ns < end_ns
    WINDOW in_time AS (PARTITION BY unit, stretch, flow_id ORDER BY window_start_ns)
), flow_ends AS (  -- where each flow has sent its part: at its longest pause thereabouts
    SELECT unit, stretch, flow_id, part, sent_ns, sent_bytes,
           abs(sent_bytes * parts / all_bytes - part) AS distance, distance <= flow_deviation AS is_near
    FROM joined_windows
    CROSS JOIN thresholds
    CROSS JOIN range(1, most_parts + 1) AS numbers(part)
    WHERE part <= parts
    QUALIFY row_number() OVER (PARTITION BY unit, stretch, flow_id, part
                               ORDER BY is_near DESC, CASE WHEN is_near THEN coalesce(idle_ns, 9e18) ELSE 0 END DESC, distance, sent_ns) = 1
), part_ends AS (
    SELECT unit, stretch, part, max(sent_ns) AS end_ns, sum(sent_bytes) AS sent_bytes
    FROM flow_ends
    GROUP BY unit, stretch, part
), divided AS (
    SELECT unit, stretch, p.part, parts, recurrence,
           coalesce(lag(p.end_ns) OVER in_time, pause_start_ns) AS pause_start_ns,
           coalesce(lag(p.end_ns) OVER in_time, start_ns) AS start_ns,
           inner_ns, CASE WHEN p.part = parts THEN a.end_ns ELSE p.end_ns END AS end_ns,
           CASE WHEN p.part = parts THEN last_pause_ns ELSE 0 END AS last_pause_ns,
           p.sent_bytes - coalesce(lag(p.sent_bytes) OVER in_time, 0) AS payload_bytes,
           a.bytes_at_end - a.payload_bytes + p.sent_bytes AS bytes_at_end
    FROM part_ends AS p
    JOIN alike AS a USING (unit, stretch)
    WINDOW in_time AS (PARTITION BY unit, stretch ORDER BY p.part)
), found AS (
    SELECT *, row_number() OVER (PARTITION BY unit ORDER BY end_ns, part) - 1 AS step
    FROM (FROM divided
          UNION ALL
          SELECT unit, stretch, part, parts, recurrence, pause_start_ns, start_ns, inner_ns, end_ns, last_pause_ns, payload_bytes,
                 bytes_at_end
          FROM alike
          WHERE parts = 1)
), judged AS (
    SELECT unit, count(*) FILTER (parts = 1) AS steps, any_value(recurrence) AS recurrence,
           any_value(bytes) AS unit_bytes, coalesce(sum(payload_bytes) FILTER (parts = 1), 0) / unit_bytes AS share_paused,
           sum(payload_bytes) / unit_bytes AS share_in_steps,
           greatest(1 - avg(abs(payload_bytes / mean_bytes - 1)) / any_value(payload_deviation), 0) AS alikeness,
           avg(coalesce(last_pause_ns / nullif(last_pause_ns + inner_ns, 0), 0)) AS clearness
    FROM (SELECT *, avg(payload_bytes) OVER (PARTITION BY unit) AS mean_bytes FROM found)
    JOIN (SELECT unit, max(bytes) AS bytes FROM pauses GROUP BY unit) USING (unit)
    CROSS JOIN thresholds
    GROUP BY unit
), structured AS (
    SELECT unit, unit_bytes, cbrt(share_in_steps * alikeness * clearness) AS confidence
    FROM judged
    CROSS JOIN thresholds
    WHERE steps >= least_steps AND share_paused >= least_share_in_steps AND recurrence >= least_recurrence
)
SELECT run_id, pair, step::BIGINT AS step,
       round((unit_bytes - bytes_at_end) / median(payload_bytes) OVER own)::BIGINT AS steps_after,
       start_ns, end_ns, payload_bytes::BIGINT AS payload_bytes,
       (start_ns - pause_start_ns) / 1e6 AS pause_before_ms, confidence
FROM found
JOIN structured USING (unit)
JOIN units USING (unit)
WINDOW own AS (PARTITION BY unit)
ORDER BY run_id, pair, step
