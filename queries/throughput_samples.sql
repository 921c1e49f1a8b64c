-- question: Into which samples is a stretch of each run cut, to say how high its throughput is?
-- subject: throughput
-- row: a run that has windows
-- inputs: run_spans, logged_steps
-- param: batches BIGINT = 1000; most samples of a run; NULL: as many as there are
-- param: batch_ms DOUBLE > 0 = NULL; length of a sample, ms; NULL: of a step on average, or of several where there are more steps than `batches`; without a log the stretch in at most `batches` parts
-- param: from_ms DOUBLE = NULL; start of the stretch, ms since the run's first packet; NULL: the training's start
-- param: until_ms DOUBLE = NULL; end of the stretch; NULL: the training's end
-- column: run_id
-- column: base_ns
-- column: first_ns
-- column: stretch; time examined: training, capture (no log covers the traffic) or chosen (by parameters or the method paper)
-- column: begin_ns ns since the epoch, UTC; start of the stretch
-- column: stretch_begin_ns ns since the epoch, UTC; start of the first sample: of the first base window in the stretch
-- column: stretch_end_ns ns since the epoch, UTC; end of the stretch
-- column: length_ns ns; length of a sample, whole base windows
-- column: sample_count samples; whole samples in the stretch; of a whole capture without batch_ms also the last, begun one
-- column: length_problem; why samples of this length are no sample of the mean; null where they are
-- The stretch is the training, or the whole capture where no log covers the traffic (run_spans), cut to the capture in
-- any case. Traffic has the period of a step, so that samples must be as long as one (up to a base window).
WITH step_lengths AS (
    SELECT run_id, steps, (end_ns - start_ns) / steps AS step_ns
    FROM logged_steps
    WHERE end_ns > start_ns
), stretches AS (
    SELECT run_id, base_ns, first_ns, steps, step_ns,
           greatest(coalesce(first_ns + ($from_ms * 1e6)::BIGINT, s.begin_ns), first_ns) AS begin_at_ns,
           first_ns + (begin_at_ns - first_ns + base_ns - 1) // base_ns * base_ns AS stretch_begin_ns,
           least(coalesce(first_ns + ($until_ms * 1e6)::BIGINT, end_ns), last_ns) AS stretch_end_ns,
           CASE WHEN $from_ms IS NOT NULL OR $until_ms IS NOT NULL THEN 'chosen' ELSE span_source END AS stretch,
           span_source = 'training' AND step_ns IS NOT NULL AS has_steps
    FROM run_spans AS s
    LEFT JOIN step_lengths USING (run_id)
)
SELECT run_id, base_ns, first_ns, stretch, begin_at_ns AS begin_ns, stretch_begin_ns, stretch_end_ns,
       greatest(CASE WHEN $batch_ms IS NOT NULL THEN ($batch_ms * 1e6 / base_ns)::BIGINT
                     WHEN has_steps THEN floor(step_ns * ceil(steps / $batches) / base_ns)::BIGINT
                     ELSE ceil((stretch_end_ns - stretch_begin_ns) / ($batches * base_ns))::BIGINT END, 1) * base_ns AS length_ns,
       greatest(least(CASE WHEN stretch = 'capture' AND $batch_ms IS NULL THEN ceil((stretch_end_ns - stretch_begin_ns) / length_ns)::BIGINT
                           ELSE (stretch_end_ns - stretch_begin_ns) // length_ns END, $batches), 0) AS sample_count,
       CASE WHEN has_steps AND length_ns <= step_ns - base_ns THEN 'a sample is shorter than a step'
            WHEN NOT has_steps AND $batch_ms IS NULL THEN 'no log, so batch_ms must state a length, longer than a step'
       END AS length_problem
FROM stretches
ORDER BY run_id
