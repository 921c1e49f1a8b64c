-- question: Under which framework setting is each run compared with others?
-- subject: runs
-- row: a run
-- inputs: runs
-- figure: zerwas section IV-B, the settings that figs. 3, 4 and 8 compare
-- column: run_id; run
-- column: framework_setting; framework-backend, and ", pair averaging" where it averages pairs; unknown where no framework is declared
-- Pair averaging is a setting of its own, because it sends other amounts in other ways; the declared optimizer,
-- topology or framework names it.
SELECT run_id,
       coalesce(framework || coalesce('-' || backend, ''), 'unknown')
           || CASE WHEN framework NOT ILIKE '%pair%' AND (topology = 'pair_averaging' OR optimizer ILIKE '%pair%')
                   THEN ', pair averaging' ELSE '' END AS framework_setting
FROM runs
ORDER BY run_id
