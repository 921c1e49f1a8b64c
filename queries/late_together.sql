-- question: Which hosts of a training job are late in the same steps, so that no one of them alone makes it slow?
-- subject: delays
-- row: a run and a job in which two or more hosts, at most half of those of a collective, are late in at least 80% of the steps, or all but one, which is ready before them
-- inputs: hosts, collective_transfers, collective_entries
-- answer: hosts, sentence
-- column: run_id from collective_transfers
-- column: job from collective_transfers
-- column: hosts; addresses of the late hosts, sorted, with commas between
-- column: steps_late steps; behind the first, in which the one of them is late that is so least often; of all but one, in which that one is ready before them
-- column: steps steps; behind the first
-- column: cost_ms ms; mean over these steps: what the latest of them needs beyond the median of the others, but no more than it enters behind all other hosts; of all but one, what each of them needs longer than that one
-- column: share_of_step ratio; cost_ms over the mean step
-- column: sentence; the finding in words, without a full stop
-- verdicts takes for a host's cost what a step would gain without its lateness alone: nothing, where another host is as late. Late is a host
-- whose own time (collective_entries) is beyond the median of the others, with as many partners in the same collective, by 5% of the mean
-- step. One that enters within 0.1 ms of its only receiver may have waited for that one (RDMA), and is left out. A job in which
-- they cost less than that together has no row. No test says how often chance does as much of these.
-- All but one are late, or that one does less: nothing on the wire tells which. These are hosts of collectives that three and more enter without
-- waiting for data, with as many partners, one at most left out of a step. The next one needs longer by 5% of the mean step, in at least 80% of the steps. Of n equal hosts one is ready
-- first so often with the binomial's tail times n: that must be 0.05 at most.
WITH thresholds AS (
    SELECT 0.05 AS least_share, 0.8 AS least_steps, 0.5 AS most_hosts, 100_000 AS at_once_ns,
           0.05 AS most_p  -- that one of equal hosts is ready first so often
), lengths AS (
    SELECT run_id, job, count(*) - 1 AS steps, (max(end_ns) - min(end_ns)) / 1e6 / steps AS step_ms
    FROM (SELECT run_id, job, step, max(last_ns) AS end_ns FROM collective_transfers GROUP BY run_id, job, step)
    GROUP BY run_id, job
    HAVING steps > 0
), receivers AS (
    SELECT run_id, job, "position", src_ip AS host_ip, any_value(dst_ip) AS to_ip
    FROM collective_transfers
    GROUP BY run_id, job, "position", src_ip
    HAVING count(DISTINCT dst_ip) = 1
), entered AS (
    SELECT e.*
    FROM collective_entries AS e
    LEFT JOIN receivers AS r USING (run_id, job, "position", host_ip)
    LEFT JOIN collective_entries AS o
      ON o.run_id = e.run_id AND o.job = e.job AND o.step = e.step AND o."position" = e."position" AND o.host_ip = to_ip
    CROSS JOIN thresholds
    WHERE e.step > 0 AND e.own_ms IS NOT NULL AND NOT e.is_waiting AND coalesce(abs(o.entry_ns - e.entry_ns) > at_once_ns, true)
), compared AS (
    SELECT run_id, job, step, "position", host_ip, entry_ns, count(*) OVER of_collective AS entered,
           greatest(0, own_ms - list_median(list(own_ms) OVER equals)) AS beyond_ms
    FROM entered
    WINDOW of_collective AS (PARTITION BY run_id, job, step, "position"),
           equals AS (PARTITION BY run_id, job, step, "position", partners ORDER BY entry_ns
                      ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE CURRENT ROW)
), late AS (
    SELECT run_id, job, host_ip, median(beyond_ms) AS beyond_ms, count(*) FILTER (beyond_ms >= least_share * step_ms) AS steps_late,
           max(entered) AS entered, any_value(steps) AS steps, any_value(step_ms) AS step_ms
    FROM (SELECT run_id, job, step, host_ip, sum(beyond_ms) AS beyond_ms, max(entered) AS entered FROM compared GROUP BY ALL)
    JOIN lengths USING (run_id, job)
    CROSS JOIN thresholds
    GROUP BY run_id, job, host_ip
    HAVING steps_late >= any_value(least_steps) * any_value(steps)
), together AS (
    SELECT run_id, job, list(host_ip ORDER BY host_ip) AS members, min(steps_late) AS steps_late, any_value(steps) AS steps,
           any_value(step_ms) AS step_ms,
           string_agg(format(CASE WHEN beyond_ms < 100 THEN '{} (by {:.3g} ms)' ELSE '{} (by {:.0f} ms)' END, coalesce(label, host_ip), beyond_ms), ', '
                      ORDER BY host_ip) AS named
    FROM late
    LEFT JOIN hosts USING (run_id, host_ip)
    CROSS JOIN thresholds
    GROUP BY run_id, job
    HAVING count(*) BETWEEN 2 AND any_value(most_hosts) * max(entered)
), gained AS (
    SELECT run_id, job, step, "position",
           greatest(0, least(max(beyond_ms) FILTER (is_member),
                             (max(entry_ns) FILTER (is_member) - max(entry_ns) FILTER (NOT is_member)) / 1e6)) AS gained_ms
    FROM (SELECT c.*, list_contains(members, host_ip) AS is_member FROM compared AS c JOIN together USING (run_id, job))
    GROUP BY run_id, job, step, "position"
), costs AS (
    SELECT run_id, job, sum(gained_ms) AS total_ms
    FROM gained
    GROUP BY run_id, job
), firsts AS (  -- collectives that all hosts enter alike, and the host that is ready first
    SELECT run_id, job, step, "position", arg_min(host_ip, own_ms) AS first_ip, list_sort(list(own_ms))[2] - min(own_ms) AS ahead_ms, count(*) AS compared
    FROM entered
    GROUP BY run_id, job, step, "position"
    HAVING count(*) >= 3 AND count(DISTINCT partners) = 1
), whole AS (
    SELECT run_id, job, "position", list(DISTINCT host_ip ORDER BY host_ip) AS entered_by
    FROM collective_entries
    GROUP BY run_id, job, "position"
), ahead AS (
    SELECT run_id, job, first_ip, count(*) FILTER (ahead_ms >= least_share * step_ms) AS steps_ahead, sum(ahead_ms) AS total_ms,
           any_value(steps) AS steps, any_value(step_ms) AS step_ms, max(entered_by) AS entered_by
    FROM (SELECT run_id, job, step, first_ip, sum(ahead_ms) AS ahead_ms, max(entered_by) AS entered_by
          FROM firsts
          JOIN whole USING (run_id, job, "position")
          WHERE compared >= len(entered_by) - 1  -- one may have entered with its receiver
          GROUP BY run_id, job, step, first_ip)
    JOIN lengths USING (run_id, job)
    CROSS JOIN thresholds
    GROUP BY run_id, job, first_ip
    HAVING steps_ahead >= any_value(least_steps) * any_value(steps)
), rare AS (
    SELECT *, len(entered_by) * (SELECT sum(exp(lgamma(steps + 1) - lgamma(i + 1) - lgamma(steps - i + 1) - i * ln(len(entered_by))
                                                + (steps - i) * ln(1 - 1 / len(entered_by))))
                                 FROM (SELECT unnest(range(steps_ahead, steps + 1)) AS i)) AS p_value
    FROM ahead
), behind AS (
    SELECT a.run_id, a.job, steps_ahead AS steps_late, steps, total_ms / steps AS cost_ms, step_ms,
           list(h.host_ip ORDER BY h.host_ip) AS members, coalesce(f.label, first_ip) AS first_host,
           string_agg(coalesce(h.label, h.host_ip), ', ' ORDER BY h.host_ip) AS named
    FROM rare AS a
    CROSS JOIN thresholds
    JOIN hosts AS h ON h.run_id = a.run_id AND list_contains(entered_by, h.host_ip) AND h.host_ip <> first_ip
    LEFT JOIN hosts AS f ON f.run_id = a.run_id AND f.host_ip = first_ip
    WHERE p_value <= most_p
    GROUP BY a.run_id, a.job, steps_ahead, steps, total_ms, step_ms, f.label, first_ip
), found AS (
    SELECT run_id, job, members, steps_late, steps, total_ms / steps AS cost_ms, step_ms, named, NULL AS first_host
    FROM together
    JOIN costs USING (run_id, job)
    UNION ALL BY NAME
    FROM behind
)
SELECT run_id, job, array_to_string(members, ',') AS hosts, steps_late, steps, cost_ms, cost_ms / step_ms AS share_of_step,
       format('{} {} in {} of {} steps: a step of {} ms loses {} ms ({:.0f}%){}',
              named, CASE WHEN first_host IS NULL THEN 'are late together,' ELSE format('need longer than {}', first_host) END, steps_late, steps,
              format(CASE WHEN step_ms < 1000 THEN '{:.4g}' ELSE '{:.0f}' END, step_ms),
              format(CASE WHEN cost_ms < 100 THEN '{:.3g}' ELSE '{:.0f}' END, cost_ms), 100 * share_of_step,
              CASE WHEN first_host IS NULL THEN ' behind the others; a step gains little without one of them alone'
                   ELSE format('; either they are late alike, or {} does less: nobody can tell from the traffic', first_host) END) AS sentence
FROM found
CROSS JOIN thresholds
WHERE share_of_step >= least_share
ORDER BY run_id, job, first_host
