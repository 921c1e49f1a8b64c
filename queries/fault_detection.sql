-- question: From which cost on are declared faults found, where they are and by their kind, and by a plain baseline?
-- subject: delays
-- row: a class of what faults cost by the logs; and one for the runs whose fault is declared to be none
-- inputs: runs, steps, fault_score
-- answer: cost, runs, found, baseline_found
-- column: cost; class of the cost: none (no fault), below 5%, 5 to 10%, 10 to 20%, 20 to 50%, above 50% longer steps; unknown
-- column: runs runs; their number
-- column: found runs; whose costliest finding is at the host at fault; of runs without a fault those with any finding: false alarms
-- column: kind_found runs; in which the kind is the fault's, too
-- column: baseline_found runs; in which the baseline of fault_score names the host at fault; it always names one, so it is wrong in all runs without a fault
-- column: found_share share; found over runs
-- column: baseline_share share; baseline_found over runs; null without a fault
-- A fault's cost is the mean time of the steps that it lasts over that of the others of the run, less 1; where it lasts for all of them, of clean
-- runs of as many workers with the same framework, model, backend and topology. The first step is left out. No verdict is used for it.
WITH took AS (
    SELECT run_id, step, (max(end_ns) - min(start_ns)) / 1e6 AS step_ms
    FROM steps
    WHERE step > 0
    GROUP BY run_id, step
), timed AS (
    SELECT run_id, fault_kind, framework, model, backend, topology, workers, delay_ms,
           avg(step_ms) FILTER (fault_kind = 'none' OR step NOT BETWEEN fault_from_step AND fault_to_step) AS without_ms,
           avg(step_ms) FILTER (step BETWEEN fault_from_step AND fault_to_step) AS with_ms
    FROM took
    JOIN runs USING (run_id)
    WHERE fault_kind IS NOT NULL
    GROUP BY ALL
), clean AS (
    SELECT framework, model, backend, topology, workers, delay_ms, median(without_ms) AS clean_ms
    FROM timed
    WHERE fault_kind = 'none'
    GROUP BY ALL
), costs AS (
    SELECT run_id, with_ms / coalesce(without_ms, clean_ms) - 1 AS cost_share
    FROM timed AS t
    LEFT JOIN clean AS c
      ON t.framework IS NOT DISTINCT FROM c.framework AND t.model IS NOT DISTINCT FROM c.model AND t.backend IS NOT DISTINCT FROM c.backend
         AND t.topology IS NOT DISTINCT FROM c.topology AND t.workers IS NOT DISTINCT FROM c.workers AND t.delay_ms IS NOT DISTINCT FROM c.delay_ms
), classes AS (
    SELECT unnest(['none', 'below 5%', '5 to 10%', '10 to 20%', '20 to 50%', 'above 50%', 'unknown']) AS cost, unnest(range(7)) AS place
), judged AS (
    SELECT s.*, CASE WHEN fault_kind = 'none' THEN 0 WHEN cost_share IS NULL THEN 6 WHEN cost_share < 0.05 THEN 1 WHEN cost_share < 0.1 THEN 2
                     WHEN cost_share < 0.2 THEN 3 WHEN cost_share < 0.5 THEN 4 ELSE 5 END AS place
    FROM fault_score AS s
    LEFT JOIN costs USING (run_id)
)
SELECT cost, count(*) AS runs, count(*) FILTER (coalesce(is_place_right, is_false_alarm)) AS found, count(*) FILTER (is_kind_right) AS kind_found,
       count(*) FILTER (is_baseline_right) AS baseline_found, found / runs AS found_share,
       CASE WHEN cost <> 'none' THEN baseline_found / runs END AS baseline_share
FROM judged
JOIN classes USING (place)
GROUP BY cost, place
ORDER BY place
