-- question: How certain is the mean of a series of values of one run (its steps, or windows of its traffic), within this run?
-- subject: runs
-- row: the series
-- inputs: student_t
-- param: series DOUBLE[] = NULL; values in the order of time
-- column: samples; number of values
-- column: mean; mean of the values, in their unit
-- column: deviation; standard deviation by n - 1
-- column: lag1_autocorrelation ratio; correlation of neighbouring values, -1 to 1
-- column: error; standard error of the mean within this run; null with fewer than 200 values
-- column: half_width; half width of the 95% interval within this run: error times Student's t of 9 degrees of freedom; null with fewer than 200 values
-- column: problem; why there is no interval; null where there is
-- Neighbouring steps are alike, so that s / sqrt(n) is too small (Flyvbjerg and Petersen 1989, J. Chem. Phys. 91, 461).
-- The error is the larger of two: that of 10 batch means (ten parts of equal length, what is left over is at the start),
-- and s / sqrt(n) sqrt((1 + r) / (1 - r)) with the lag-1 autocorrelation r, whose bias in a short series, (1 + 4 r) / n, is
-- added (Kendall 1954). The first assumes nothing but parts that are longer than the memory of the process; the second
-- holds where memory decays geometrically. Of 200 values it covers 0.92 at r = 0.95, and
-- of 100 only 0.86 (benchmarks/within_run.py).
-- The interval says where the mean of a longer run would be. Another run of the same setting differs by more than that, and
-- only runs tell by how much (compare, sweep_cells).
-- Lists, not rows, so that it can be joined to a list a run: FROM (SELECT run_id, list(ms ORDER BY step) AS series ...),
-- within_run(series := series).
SELECT samples, mean, deviation, lag1_autocorrelation, error, t * error AS half_width,
       CASE WHEN samples < least_samples THEN 'fewer than ' || least_samples || ' values' END AS problem
FROM (
    SELECT *, deviation / sqrt(samples) * sqrt((1 + r) / (1 - r)) AS lag1_error,
           CASE WHEN samples >= least_samples
                THEN greatest(list_aggregate(batch_means, 'stddev_samp') / sqrt(batches), lag1_error) END AS error
    FROM (
        SELECT *, len(known) AS samples, list_avg(known) AS mean,
               CASE WHEN samples > 1 THEN list_aggregate(known, 'stddev_samp') END AS deviation,
               list_transform(known, lambda value: value - mean) AS off,
               list_sum(list_transform(list_zip(off[2:], off[:-2]), lambda pair: pair[1] * pair[2]))
                   / nullif(list_sum(list_transform(off, lambda value: value * value)), 0) AS lag1_autocorrelation,
               coalesce(least(greatest(lag1_autocorrelation + (1 + 4 * greatest(lag1_autocorrelation, 0)) / samples, 0), 0.99), 0)
                   AS r,
               samples // batches AS length,
               list_transform(range(batches),
                              lambda batch: list_avg(known[samples - (batch + 1) * length + 1:samples - batch * length]))
                   AS batch_means
        FROM (
            SELECT coalesce(list_filter($series::DOUBLE[], lambda value: value IS NOT NULL), []) AS known,
                   200 AS least_samples, 10 AS batches, (SELECT t FROM student_t WHERE df = 9) AS t
        )
    )
)
ORDER BY samples
