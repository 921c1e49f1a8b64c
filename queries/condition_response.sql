-- question: How do samples a second change when one condition of the links is changed and the others stay at their best?
-- subject: conditions
-- row: a condition, a value of it, and a training: framework, model, batch size, topology, workers, ranks of each and congestion control
-- inputs: sweep_cells, student_t
-- figure: cheng figs. 2 to 10
-- answer: value, step_ms, verdict
-- column: condition; delay_ms, bandwidth_mbit or loss_pct: the one that changes
-- column: value; its value: one-way delay in ms, rate in Mbit/s, or packets dropped on purpose in percent
-- column: framework_backend
-- column: topology
-- column: model
-- column: batch_size
-- column: workers
-- column: ranks_per_host
-- column: congestion_control
-- column: runs
-- column: finished_runs runs; those that did all their steps
-- column: step_ms ms; duration of a step (sweep_cells)
-- column: samples_per_s
-- column: low_samples_per_s samples/s; lower end of its 95% interval (sweep_cells)
-- column: high_samples_per_s
-- column: interval_of
-- column: of_best share; samples_per_s over that at the best value of the condition; null where it is not known
-- column: low_of_best share; lower end of its 95% interval; null where one of the two cells has fewer than three finished runs
-- column: high_of_best share; upper end
-- column: verdict; differs (the 95% interval is without 1), not told apart (it has 1), or why it cannot be told; null at the best value
-- The best conditions of a training are its shortest delay, its highest rate and its lowest loss. A condition with a
-- single value is left out. The unit of inference is the run, at least three of each cell: steps of one run do not say how
-- much another run of the same setting would differ. The interval of the ratio: Student's t on the logarithm, whose variance
-- is the sum of the squared relative standard errors of the two mean step times (delta method), with the degrees of freedom
-- of the cell that has fewer runs.
WITH cells AS MATERIALIZED (
    FROM sweep_cells()
), best AS (
    SELECT framework_backend, topology, model, batch_size, workers, ranks_per_host, congestion_control, min(delay_ms) AS delay_ms,
           max(bandwidth_mbit) AS bandwidth_mbit, min(loss_pct) AS loss_pct
    FROM cells
    GROUP BY ALL
), compared AS MATERIALIZED (
    SELECT c.*, b.delay_ms AS best_delay_ms, b.bandwidth_mbit AS best_bandwidth_mbit, b.loss_pct AS best_loss_pct,
           c.delay_ms IS NOT DISTINCT FROM b.delay_ms AS at_best_delay,
           c.bandwidth_mbit IS NOT DISTINCT FROM b.bandwidth_mbit AS at_best_bandwidth,
           c.loss_pct IS NOT DISTINCT FROM b.loss_pct AS at_best_loss
    FROM cells AS c
    JOIN best AS b ON c.framework_backend IS NOT DISTINCT FROM b.framework_backend
                  AND c.topology IS NOT DISTINCT FROM b.topology AND c.model IS NOT DISTINCT FROM b.model
                  AND c.batch_size IS NOT DISTINCT FROM b.batch_size AND c.workers IS NOT DISTINCT FROM b.workers
                  AND c.ranks_per_host IS NOT DISTINCT FROM b.ranks_per_host
                  AND c.congestion_control IS NOT DISTINCT FROM b.congestion_control
), changed AS (
    SELECT 'delay_ms' AS condition, 1 AS place, delay_ms AS value, best_delay_ms AS best_value, *
    FROM compared
    WHERE at_best_bandwidth AND at_best_loss
    UNION ALL
    SELECT 'bandwidth_mbit', 2, bandwidth_mbit, best_bandwidth_mbit, *
    FROM compared
    WHERE at_best_delay AND at_best_loss
    UNION ALL
    SELECT 'loss_pct', 3, loss_pct, best_loss_pct, *
    FROM compared
    WHERE at_best_delay AND at_best_bandwidth
), related AS (
    SELECT *, value = best_value AS is_best,
           count(DISTINCT value) OVER same AS "values",
           max(step_ms) FILTER (value = best_value) OVER same AS best_step_ms,
           max(step_error_ms) FILTER (value = best_value AND interval_of = 'runs') OVER same AS best_error_ms,
           max(finished_runs) FILTER (value = best_value) OVER same AS best_runs
    FROM changed
    WINDOW same AS (PARTITION BY condition, framework_backend, topology, model, batch_size, workers,
                                 ranks_per_host, congestion_control)
), with_errors AS (
    SELECT *, CASE WHEN NOT is_best AND interval_of = 'runs'
                   THEN sqrt(pow(step_error_ms / step_ms, 2) + pow(best_error_ms / best_step_ms, 2)) END AS error,
           least(finished_runs, best_runs) - 1 AS freedom
    FROM related
    WHERE "values" > 1 AND value IS NOT NULL
), ratios AS (
    SELECT *, best_step_ms / step_ms AS of_best, of_best * exp(-t * error) AS low_of_best, of_best * exp(t * error) AS high_of_best
    FROM with_errors
    LEFT JOIN student_t ON df = least(freedom, 1000)
)
SELECT condition, value, framework_backend, topology, model, batch_size, workers, ranks_per_host, congestion_control, runs,
       finished_runs, step_ms, samples_per_s, low_samples_per_s, high_samples_per_s, interval_of, of_best, low_of_best, high_of_best,
       CASE WHEN is_best THEN NULL
            WHEN error IS NULL THEN 'cannot be told: ' || CASE finished_runs WHEN 1 THEN 'one run' ELSE finished_runs || ' runs' END
                                    || ' here, ' || best_runs || ' at the best; at least 3 each can tell'
            WHEN 1 BETWEEN low_of_best AND high_of_best THEN 'not told apart'
            ELSE 'differs' END AS verdict
FROM ratios
ORDER BY place, framework_backend, topology, workers, ranks_per_host, model, batch_size, congestion_control, value
