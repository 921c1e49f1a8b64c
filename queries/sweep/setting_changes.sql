-- question: What does each setting of a sweep change, over the seeds?
-- row: a setting with another value than its first, the other settings of the cell, and a measure
-- inputs: cells, cell_settings, student_t
-- column: setting; name of a key that has several values in the sweep, but seed
-- column: value; of the setting, as text
-- column: reference; the value of the setting in the first cell: what the change is of
-- column: others; the other settings that vary and their values, alike in both cells
-- column: measure; iteration_ms, other_iteration_ms, SIZE_mean_ms and SIZE_p99_ms of background flows (small, medium, large, all), stream_mean_ms, stream_p99_ms, stream_jitter_ms: columns of cells
-- column: seeds; number of seeds that have it in both cells: n of the interval
-- column: at_reference; mean over these seeds at the reference, in ms
-- column: at_value; mean over these seeds at the value, likewise
-- column: change_pct percent; mean of the seeds' changes; negative: less at the value
-- column: change_low_pct percent; lower end of the 95% interval of this mean, by Student's t on the seeds' changes; null: fewer than five seeds, or one that lacks the measure
-- column: change_high_pct percent; upper end
-- A seed gives the same flows to all cells, so its change is one value, as in sharing_results.
WITH thresholds AS (
    SELECT 5 AS least_seeds
), varied AS (
    SELECT setting, arg_min(value, cell) AS reference
    FROM cell_settings
    WHERE setting <> 'seed'
    GROUP BY setting
    HAVING count(DISTINCT value) > 1
), of_cells AS (
    SELECT cell, setting, value, reference, position
    FROM cell_settings
    JOIN varied USING (setting)
), beside AS (
    SELECT a.cell, a.setting, a.value, a.reference,
        coalesce(string_agg(b.setting || ' ' || b.value, ', ' ORDER BY b.position), '') AS others
    FROM of_cells AS a
    LEFT JOIN of_cells AS b ON b.cell = a.cell AND b.setting <> a.setting
    GROUP BY ALL
), measures AS (
    FROM (
        SELECT cell,
            COLUMNS('^((other_)?iteration|(small|medium|large|all|stream)_(mean|p99)|stream_jitter)_ms$')::DOUBLE
        FROM cells
        WHERE error IS NULL
    )
    UNPIVOT INCLUDE NULLS (amount FOR measure IN (COLUMNS(* EXCLUDE (cell))))
), seeds AS (
    SELECT cell, coalesce(any_value(value) FILTER (setting = 'seed'), 'the only one') AS seed
    FROM cell_settings
    GROUP BY cell
), measured AS (
    SELECT *
    FROM beside
    JOIN measures USING (cell)
    JOIN seeds USING (cell)
), of_seeds AS (
    SELECT v.setting, v.value, v.reference, v.others, v.measure, v.cell, r.amount AS at_reference,
        v.amount AS at_value, 100 * (v.amount - r.amount) / nullif(r.amount, 0) AS change_pct
    FROM measured AS v
    JOIN measured AS r USING (setting, others, measure, seed)
    WHERE v.value <> v.reference AND r.value = v.reference
), over_seeds AS (
    SELECT setting, value, reference, others, measure, min(cell) AS first_cell, count(*) AS all_seeds,
        count(change_pct) AS seeds, avg(at_reference) FILTER (change_pct IS NOT NULL) AS at_reference,
        avg(at_value) FILTER (change_pct IS NOT NULL) AS at_value, avg(change_pct) AS change_pct,
        stddev_samp(change_pct) / sqrt(seeds) AS standard_error
    FROM of_seeds
    GROUP BY ALL
), with_reach AS (
    SELECT over_seeds.*, CASE WHEN seeds >= least_seeds AND seeds = all_seeds THEN t * standard_error END AS reach
    FROM over_seeds
    CROSS JOIN thresholds
    LEFT JOIN student_t ON df = least(seeds - 1, 1000)
)
SELECT setting, value, reference, others, measure, seeds, at_reference, at_value, change_pct,
    change_pct - reach AS change_low_pct, change_pct + reach AS change_high_pct
FROM with_reach
ORDER BY setting, first_cell, measure
