-- question: By how much does each part of each collective differ between two runs?
-- subject: delays
-- row: a job, a collective of its step, and a part of its time; none where no run is named, and an error where there is no such run
-- inputs: runs, step_collectives, collective_delays
-- param: a_run VARCHAR = NULL; run_id of the first run
-- param: b_run VARCHAR = NULL; run_id of the second run
-- needs: a_run, b_run
-- answer: position, part, b_ms, difference_ms, problem, a_ms
-- column: job from step_collectives
-- column: position from step_collectives
-- column: kind from step_collectives
-- column: part; span, waiting, transfer, slow_link, delay, other_traffic, incast, receiver, stalled or remainder: the columns of collective_delays
-- column: a_tensor_bytes bytes; size of the tensor in the first run, on all channels; null where it has no such collective
-- column: b_tensor_bytes bytes; the same of the second run
-- column: a_steps steps; of the first run, behind its first, in which the part is known
-- column: a_ms ms; median over them
-- column: a_low_ms ms; their first quartile
-- column: a_high_ms ms; their third quartile
-- column: b_steps steps; the same of the second run
-- column: b_ms ms; their median
-- column: b_low_ms ms; their first quartile
-- column: b_high_ms ms; their third quartile
-- column: difference_ms ms; b_ms less a_ms, to the nanosecond; null where problem says why
-- column: problem; why the two are not compared: bytes differ (by more than 5% of the larger), or only in one run is such a collective; else null
-- Collectives are the same where job, position and kind are, and their bytes differ little: a slow host may merge two buckets into one. Quartiles are of the steps within each run. Whether two settings differ cannot be
-- told from one run of each (compare): runs of one setting differ by more than their steps do.
WITH thresholds AS (
    SELECT 0.05 AS most_apart  -- of the bytes of the larger one
), named AS (
    SELECT side, CASE WHEN r.run_id IS NULL THEN error(side || '_run: no run ' || wanted || '; the table runs has their names') ELSE r.run_id END AS run_id
    FROM (SELECT unnest(['a', 'b']) AS side, unnest([$a_run, $b_run]) AS wanted)
    LEFT JOIN runs AS r ON r.run_id = wanted
    WHERE $a_run IS NOT NULL AND $b_run IS NOT NULL
), sizes AS (
    SELECT side, run_id, job, "position", kind, sum(tensor_bytes)::BIGINT AS tensor_bytes
    FROM step_collectives
    JOIN named USING (run_id)
    GROUP BY side, run_id, job, "position", kind
), long AS (
    UNPIVOT (
        SELECT run_id, job, "position", span_ms AS span, waiting_ms AS waiting, transfer_ms AS transfer, slow_link_ms AS slow_link,
               delay_ms AS delay, other_traffic_ms AS other_traffic, incast_ms AS incast, receiver_ms AS receiver, stalled_ms AS stalled, remainder_ms AS remainder
        FROM collective_delays
        WHERE step > 0
    ) ON span, waiting, transfer, slow_link, delay, other_traffic, incast, receiver, stalled, remainder INTO NAME part VALUE ms
), parts AS (
    SELECT unnest(['span', 'waiting', 'transfer', 'slow_link', 'delay', 'other_traffic', 'incast', 'receiver', 'stalled', 'remainder']) AS part, unnest(range(10)) AS place
), summed AS (
    SELECT side, job, "position", kind, p.part, place, any_value(tensor_bytes) AS tensor_bytes, count(ms) AS steps, median(ms) AS ms,
           quantile_cont(ms, 0.25) AS low_ms, quantile_cont(ms, 0.75) AS high_ms
    FROM sizes
    CROSS JOIN parts AS p
    LEFT JOIN long AS l USING (run_id, job, "position", part)
    GROUP BY side, job, "position", kind, p.part, place
), compared AS (
    SELECT job, "position", kind, part, place, a, b,
           CASE WHEN a.part IS NULL THEN 'only in b_run' WHEN b.part IS NULL THEN 'only in a_run'
                WHEN abs(a.tensor_bytes - b.tensor_bytes) > most_apart * greatest(a.tensor_bytes, b.tensor_bytes) THEN 'bytes differ' END AS problem
    FROM (FROM summed WHERE side = 'a') AS a
    FULL JOIN (FROM summed WHERE side = 'b') AS b USING (job, "position", kind, part, place)
    CROSS JOIN thresholds
)
SELECT job, "position", kind, part, a.tensor_bytes AS a_tensor_bytes, b.tensor_bytes AS b_tensor_bytes, coalesce(a.steps, 0) AS a_steps,
       a.ms AS a_ms, a.low_ms AS a_low_ms, a.high_ms AS a_high_ms, coalesce(b.steps, 0) AS b_steps, b.ms AS b_ms, b.low_ms AS b_low_ms,
       b.high_ms AS b_high_ms, CASE WHEN problem IS NULL THEN round(b_ms - a_ms, 6) END AS difference_ms, problem
FROM compared
ORDER BY job, "position", kind, place
