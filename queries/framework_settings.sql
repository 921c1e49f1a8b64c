-- question: Under which framework setting is each run compared with others?
-- row: a run
-- inputs: runs
-- figure: zerwas section IV-B, the settings that figs. 3, 4 and 8 compare
-- The framework and its backend. Pair averaging is a setting of its own, since it sends other amounts by other ways; the
-- optimizer, the topology or the framework's name says so.
SELECT run_id,
       coalesce(framework || coalesce('-' || backend, ''), 'unknown')
           || CASE WHEN framework NOT ILIKE '%pair%' AND (topology = 'pair_averaging' OR optimizer ILIKE '%pair%')
                   THEN ', pair averaging' ELSE '' END AS framework_setting
FROM runs
ORDER BY run_id
