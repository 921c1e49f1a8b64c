-- question: What would a delay have to cost in each job to be found, and of which hosts is none found?
-- subject: delays
-- row: a run and a job
-- inputs: hosts, collective_transfers, collective_entries
-- column: run_id from collective_transfers
-- column: job from collective_transfers
-- column: steps steps; behind the first, in which verdicts compares hosts and links
-- column: least_ms ms; 5% of the mean of these steps: what costs less is no finding
-- column: compared_hosts hosts; those that enter collectives before they have data of these, in half of the steps and more
-- column: waiting_hosts; addresses of the others, sorted, with commas between; null where there is none
-- column: bound; least_ms and steps in words
-- column: sentence; what is not seen of the waiting hosts, in words; null where there is none
-- A host that enters a collective when data of it is there, as an inner host or a leaf of a tree that waits for the one above, shows no time of its own:
-- no late one of these is found. As in verdicts, which compares hosts by such times.
WITH thresholds AS (
    SELECT 0.05 AS least_share, 0.5 AS least_entered
), lengths AS (
    SELECT run_id, job, count(*) - 1 AS steps, (max(end_ns) - min(end_ns)) / 1e6 / steps AS step_ms
    FROM (SELECT run_id, job, step, max(last_ns) AS end_ns FROM collective_transfers GROUP BY run_id, job, step)
    GROUP BY run_id, job
    HAVING steps > 0
), entering AS (
    SELECT run_id, job, host_ip, count(DISTINCT step) FILTER (NOT is_waiting AND own_ms IS NOT NULL) AS entered
    FROM collective_entries
    WHERE step > 0
    GROUP BY run_id, job, host_ip
), counted AS (
    SELECT run_id, job, any_value(steps) AS steps, any_value(least_share * step_ms) AS least_ms,
           count(*) FILTER (entered >= least_entered * steps) AS compared_hosts,
           string_agg(host_ip, ',' ORDER BY host_ip) FILTER (entered < least_entered * steps) AS waiting_hosts,
           string_agg(coalesce(label, host_ip), ', ' ORDER BY host_ip) FILTER (entered < least_entered * steps) AS waiting
    FROM entering
    JOIN lengths USING (run_id, job)
    LEFT JOIN hosts USING (run_id, host_ip)
    CROSS JOIN thresholds
    GROUP BY run_id, job
)
SELECT run_id, job, steps, least_ms, compared_hosts, waiting_hosts,
       format(CASE WHEN least_ms < 100 THEN '{:.3g} ms in {} steps' ELSE '{:.0f} ms in {} steps' END, least_ms, steps) AS bound,
       CASE WHEN contains(waiting_hosts, ',') THEN waiting || ' wait for data before they enter, as in a tree: no late one of these is seen'
            ELSE waiting || ' waits for data before it enters, as in a tree: whether it is late is not seen' END AS sentence
FROM counted
ORDER BY run_id, job
