-- question: How do iteration time, and what is left to send, depend on the axis that has most values?
-- row: a cell and a measure that it has
-- inputs: cells, cell_settings
-- figure: gao fig. 4.7, chang figs. 1 and 2
-- column: cell; number of the cell
-- column: parameter; the axis of numbers that has most values, of several the first; seed only where there is no other
-- column: value; its value, in the unit of its name
-- column: panel; of more than eight lines the other axis that has most values, and its value; else NULL
-- column: series; the other axes that have several values, and their values; without such axes all
-- column: measure; iteration_ms; aggregation_remaining_ms or distribution_remaining_ms: see `simulate sweep`
-- column: ms ms; the measure
WITH axes AS (
    SELECT setting, min(position) AS position, count(DISTINCT value) AS number,
        bool_and(try_cast(value AS DOUBLE) IS NOT NULL) AS is_number
    FROM cell_settings
    GROUP BY setting
    HAVING count(DISTINCT value) > 1
), x_axis AS (
    SELECT setting AS parameter FROM axes WHERE is_number ORDER BY setting = 'seed', number DESC, position LIMIT 1
), others AS (
    SELECT * FROM axes WHERE setting NOT IN (SELECT parameter FROM x_axis)
), panel_axis AS (
    SELECT setting FROM others
    WHERE (SELECT product(number) FROM others) > 8 ORDER BY number DESC, position LIMIT 1
), words AS (
    SELECT cell, setting, axes.position, setting || ' ' || regexp_replace(value, '\.0$', '') AS word
    FROM cell_settings
    JOIN axes USING (setting)
), lines AS (
    SELECT cell,
        any_value(word) FILTER (setting IN (SELECT setting FROM panel_axis)) AS panel,
        string_agg(word, ', ' ORDER BY position) FILTER (
            setting IN (SELECT setting FROM others) AND setting NOT IN (SELECT setting FROM panel_axis)
        ) AS series
    FROM words
    GROUP BY cell
), measured AS (
    UNPIVOT (SELECT cell, COLUMNS('(iteration|remaining)_ms$') FROM cells)
    ON COLUMNS(* EXCLUDE (cell))
    INTO NAME measure VALUE ms
)
SELECT cell, parameter, value::DOUBLE AS value, panel, coalesce(series, 'all') AS series, measure, ms
FROM measured
JOIN lines USING (cell)
JOIN cell_settings USING (cell)
JOIN x_axis ON setting = parameter
ORDER BY measure, cell
