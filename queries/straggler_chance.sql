-- question: Is one worker of a run the last to start more often than chance makes one of them?
-- subject: steps
-- row: a run with two workers or more that wait for each other
-- inputs: stragglers, step_time_rows
-- answer: verdict
-- param: skip_steps BIGINT = 1; first steps of each run that are left out, as in step_time_rows
-- column: run_id from stragglers
-- column: workers hosts; workers in the log
-- column: decided_steps steps; steps that all of them start, and one alone is the last; without the first (step_time_rows)
-- column: most_often steps; most of these in which the same worker is the last
-- column: expected steps; decided_steps over workers
-- column: p_value; probability that some worker is the last at least so often, if each is equally likely in every step
-- column: verdict; more often than chance (p_value below 0.05), no worker more often than chance, or too few steps: not even the same worker in all of them would tell
-- The unit is the step. p_value is exact: the tail of the largest count of a multinomial with equal probabilities, counted
-- worker by worker (of the steps that are left, the next worker has a binomial number). Beyond 300 steps it is the upper
-- bound `workers` times the tail of one worker's binomial. Steps are taken to be independent: a cause that lasts for some steps
-- of a run is found as a difference of workers within this run. Of runs without any, 5% and less are called so.
WITH RECURSIVE thresholds AS (
    SELECT 300 AS exact_steps, 0.05 AS alpha
), starts AS MATERIALIZED (
    SELECT run_id, step, worker, is_last,
           count(*) OVER of_step AS started, count(*) FILTER (slack_ms = 0) OVER of_step AS together
    FROM stragglers
    SEMI JOIN (FROM step_time_rows(skip_steps := $skip_steps)) USING (run_id, step)
    WINDOW of_step AS (PARTITION BY run_id, step)
), of_run AS (
    SELECT run_id, count(DISTINCT worker) AS workers
    FROM starts
    GROUP BY run_id
), times AS (
    SELECT run_id, workers, worker,
           count(*) FILTER (started = workers AND together = 1 AND is_last) AS times_last
    FROM starts
    JOIN of_run USING (run_id)
    GROUP BY ALL
), counts AS MATERIALIZED (
    SELECT run_id, workers, sum(times_last)::BIGINT AS n, max(times_last) AS most
    FROM times
    GROUP BY run_id, workers
), cases AS (
    SELECT DISTINCT workers, n, most
    FROM counts
    CROSS JOIN thresholds
    WHERE n BETWEEN 1 AND exact_steps
), shared AS (  -- probability that the first `done` workers are last fewer than `most` times each, and `left_over` steps are left
    SELECT workers, n, most, 0 AS done, n AS left_over, 1::DOUBLE AS p
    FROM cases
    UNION ALL
    SELECT workers, n, most, done + 1, left_over - own,
           sum(p * CASE WHEN done + 1 = workers THEN (own = left_over)::INTEGER
                        ELSE exp(lgamma(left_over + 1) - lgamma(own + 1) - lgamma(left_over - own + 1)
                                 - own * ln(workers - done) + (left_over - own) * ln(1 - 1 / (workers - done))) END)
    FROM (SELECT *, unnest(range(least(most - 1, left_over) + 1)) AS own FROM shared WHERE done < workers)
    GROUP BY ALL
), exact AS (
    SELECT workers, n, most, greatest(1 - coalesce(sum(p) FILTER (done = workers AND left_over = 0), 0), 0) AS p_value
    FROM shared
    GROUP BY workers, n, most
), bounds AS (
    SELECT workers, n, most,
           least(workers * sum(exp(lgamma(n + 1) - lgamma(own + 1) - lgamma(n - own + 1)
                                   - own * ln(workers) + (n - own) * ln(1 - 1 / workers))), 1) AS p_value
    FROM (
        SELECT DISTINCT workers, n, most, unnest(range(most, n + 1)) AS own
        FROM counts
        CROSS JOIN thresholds
        WHERE n > exact_steps
    )
    GROUP BY workers, n, most
), tested AS (
    SELECT run_id, workers, n, most, coalesce(e.p_value, b.p_value) AS p_value, alpha
    FROM counts
    CROSS JOIN thresholds
    LEFT JOIN exact AS e USING (workers, n, most)
    LEFT JOIN bounds AS b USING (workers, n, most)
)
SELECT run_id, workers, n AS decided_steps, most AS most_often, n / workers AS expected, p_value,
       CASE WHEN n = 0 OR pow(workers, 1 - n) >= alpha THEN 'too few steps'
            WHEN p_value < alpha THEN 'more often than chance'
            ELSE 'no worker more often than chance' END AS verdict
FROM tested
ORDER BY run_id
