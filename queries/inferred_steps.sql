-- question: Which training steps does the traffic show, without any log?
-- subject: steps
-- row: a run and a step; one row without a step for a run whose traffic shows none
-- inputs: runs, flow_windows, step_bursts, capture_coverage, unknown_payload
-- answer: step, start_ns, confidence
-- param: longest_step_s DOUBLE > 0 = 20; longest step that is searched for, s; epochs that end in a pause are longer
-- column: run_id from step_bursts
-- column: structured; whether the traffic shows steps
-- column: step; number of the step in the traffic, from 0
-- column: start_ns ns since the epoch, UTC; start of the first base window with training traffic in the step; where pairs begin it before others have ended the one before, that end
-- column: end_ns ns since the epoch, UTC; end of the last one: comparable to a log's time stamp
-- column: payload_bytes bytes; payload of the training traffic in the step, without headers and acknowledgements
-- column: pause_before_ms ms; length of the pause before the step; 0 where there is none; null where the traffic begins with it
-- column: period_ms ms; from the end of the step before to this one's end; null for the first
-- column: confidence share; that of step_bursts, times the part of the run's hosts that its captures cover (capture_coverage)
-- column: found_by; as in step_bursts; null where structured is false
-- column: waiting_share share; part of the steps in which no host has all that it gets before the others have begun to send (a host that only gives its part: before it has sent all); of two hosts, in which neither begins the next step before it has all of this one; null where a host only sends or only gets
-- column: is_synchronous; whether the hosts wait for each other in each step, by the traffic alone; null where it cannot be told
-- column: evidence; what was examined, and why a run has no steps
-- payload_bytes has no headers and no acknowledgements, and of the run's training traffic only what is between a step's start and end.
-- To cite the bytes of a step: run_step_volume with --infer-steps.
-- A step is a stretch in which every pair of hosts moves the payload that recurs (paused_steps), found by the pauses of
-- all traffic at once or of each pair (step_bursts). Where both show steps, those of the pairs count if they are as many or
-- up to half more, and hosts wait in as large a share of them: pauses of the whole run miss those steps that begin before
-- others have ended, and may lie between a server's answer and the next gradients.
-- In a synchronous step each host needs a part of every other one, so none can have all before the last has begun to send.
-- A host gives only its part where its one peer, or each of more hosts than it has peers, has the same peers: the leaf of a
-- tree, the worker of servers. Then nobody has all before it has sent all. A host that gets before it sends gets the answer in
-- the next step. Where hosts do not wait in a tenth of the steps of pairs, or pairs that send the same payload at once do so at
-- different rates, the run is asynchronous, and has no steps. Where a pair shows no steps of its own that is not told: it hides
-- what its hosts get of it. No log, table of phases or declared attribute is read.
-- Asynchronous workers of a server may stay within one transfer of each other. An answer then comes as long after a worker's own
-- gradients as ever, however late the last worker's are; a server that waits answers that much later (slope 0 and 1).
-- Of a run whose captures do not cover all hosts, buckets or rounds on the links that are seen pass for steps: nothing seen tells them apart.
-- Steps whose payload differs much from one to the next are not found. What a program does after its last data (a control
-- message, an update) is in no payload: a log may end such a step later. Jobs that do not wait for each other are not told
-- from asynchronous workers, nor asynchronous workers without a server that stay within one transfer of each other from
-- synchronous ones.
WITH thresholds AS (
    SELECT 0.9 AS least_waiting_share,  -- of the steps: all in synchronous training, but for losses and restarts
           0.5 AS least_doubtful_share, -- of steps by the pauses of the run: from here on they may be steps, divided badly
           1.5 AS most_more_steps,       -- by pairs than by the pauses of the run
           0.5 AS least_slope,           -- ms that an answer comes later for each ms that the last gradients do: 1 or 0
           3 AS slope_errors,            -- standard errors that a slope is below it
           10 AS slope_steps,            -- in fewer, one late answer decides
           0.05 AS equal_payload         -- of a pair's payload of a step from the median of pairs
), bursts AS MATERIALIZED (
    FROM step_bursts(longest_step_s := $longest_step_s)
), found AS (
    SELECT DISTINCT run_id, found_by, step, step_start_ns, step_end_ns, pause_before_ms, payload_bytes, confidence
    FROM bursts
    WHERE step IS NOT NULL
), links AS (
    SELECT run_id, found_by, src_ip AS host_ip, dst_ip AS peer_ip FROM bursts WHERE step IS NOT NULL
    UNION
    SELECT run_id, found_by, dst_ip, src_ip FROM bursts WHERE step IS NOT NULL
), peers AS (
    SELECT run_id, found_by, host_ip, list_sort(list(peer_ip)) AS peers
    FROM links
    GROUP BY run_id, found_by, host_ip
), givers AS (
    SELECT run_id, found_by, host_ip, len(peers) = 1 OR count(*) OVER (PARTITION BY run_id, found_by, peers) > len(peers) AS only_gives,
           count(*) OVER (PARTITION BY run_id, found_by) AS hosts
    FROM peers
), sent AS (
    SELECT run_id, found_by, step, src_ip AS host_ip, min(start_ns) AS first_ns, max(end_ns) AS last_ns
    FROM bursts
    WHERE step IS NOT NULL
    GROUP BY ALL
), received AS (
    SELECT run_id, found_by, step, dst_ip AS host_ip, max(end_ns) AS got_ns
    FROM bursts
    WHERE step IS NOT NULL
    GROUP BY ALL
), exchanges AS (
    SELECT run_id, found_by, step, host_ip, hosts, got_ns, CASE WHEN only_gives THEN last_ns ELSE first_ns END AS given_ns,
           CASE WHEN got_ns > first_ns THEN got_ns ELSE lead(got_ns) OVER of_host END AS answered_ns, only_gives,
           lead(first_ns) OVER of_host AS next_first_ns
    FROM sent
    JOIN received USING (run_id, found_by, step, host_ip)
    JOIN givers USING (run_id, found_by, host_ip)
    WINDOW of_host AS (PARTITION BY run_id, found_by, host_ip ORDER BY step)
), ordered AS (  -- the last to give, and the last of the others
    SELECT *, row_number() OVER (PARTITION BY run_id, found_by, step ORDER BY given_ns DESC, host_ip) AS place
    FROM exchanges
), last_gifts AS (
    SELECT run_id, found_by, step, max(given_ns) FILTER (place = 1) AS last_ns, max(host_ip) FILTER (place = 1) AS last_ip,
           max(given_ns) FILTER (place = 2) AS second_ns
    FROM ordered
    GROUP BY run_id, found_by, step
), ways AS (
    SELECT run_id, found_by, max(window_ns) AS window_ns, any_value(all_pairs) AS training_pairs,
           count(DISTINCT (src_ip, dst_ip)) FILTER (WHERE step IS NOT NULL) AS seen_pairs
    FROM bursts
    GROUP BY run_id, found_by
), waits AS (
    SELECT run_id, found_by, step,
           bool_and(CASE WHEN hosts = 2 THEN coalesce(next_first_ns + window_ns >= got_ns, true)
                         ELSE answered_ns + window_ns >= CASE WHEN host_ip = last_ip THEN second_ns ELSE last_ns END
                    END) AS is_waiting
    FROM exchanges
    JOIN last_gifts USING (run_id, found_by, step)
    JOIN ways USING (run_id, found_by)
    GROUP BY run_id, found_by, step
), lateness AS (  -- how long a host that only gives waits for its answer, and how much later the last of these has given
    SELECT run_id, found_by, host_ip, (answered_ns - given_ns) / 1e6 AS wait_ms,
           (max(given_ns) OVER (PARTITION BY run_id, found_by, step) - given_ns) / 1e6 AS late_ms
    FROM exchanges
    WHERE only_gives AND hosts > 2
), centred AS (  -- each host apart: one may always be the first, or get its answer last
    SELECT run_id, found_by, host_ip, wait_ms - avg(wait_ms) OVER of_host AS wait_ms, late_ms - avg(late_ms) OVER of_host AS late_ms
    FROM lateness
    WHERE wait_ms IS NOT NULL
    WINDOW of_host AS (PARTITION BY run_id, found_by, host_ip)
), slopes AS (
    SELECT run_id, found_by, regr_slope(wait_ms, late_ms) AS slope,
           sqrt((1 - regr_r2(wait_ms, late_ms)) * regr_syy(wait_ms, late_ms) / regr_sxx(wait_ms, late_ms)
                / (count(*) - count(DISTINCT host_ip) - 1)) AS slope_error
    FROM centred
    GROUP BY run_id, found_by
    HAVING count(*) > count(DISTINCT host_ip) + 1 AND regr_sxx(wait_ms, late_ms) > 0
), candidates AS (
    SELECT run_id, found_by, count(*) AS steps, avg(is_waiting::INTEGER) AS waiting_share
    FROM found
    LEFT JOIN waits USING (run_id, found_by, step)
    GROUP BY run_id, found_by
), of_run AS (
    FROM candidates WHERE found_by = 'run'
), of_pairs AS (
    FROM candidates WHERE found_by = 'pairs'
), chosen AS (
    SELECT run_id,
           CASE WHEN r.steps IS NULL OR p.steps BETWEEN r.steps AND most_more_steps * r.steps
                                        AND coalesce(p.waiting_share, 1) >= coalesce(r.waiting_share, 1)
                     OR r.waiting_share < least_waiting_share AND p.steps >= r.steps
                THEN 'pairs' ELSE 'run' END AS found_by
    FROM of_run AS r
    FULL JOIN of_pairs AS p USING (run_id)
    CROSS JOIN thresholds
), rates AS (  -- of the pairs of runs whose pairs do not agree
    SELECT run_id, count(*) AS pairs, any_value(all_pairs) AS all_pairs, min(pair_steps) AS fewest, max(pair_steps) AS most,
           bool_and(abs(pair_step_bytes / usual_bytes - 1) <= equal_payload) AS is_equal
    FROM (SELECT *, median(pair_step_bytes) OVER (PARTITION BY run_id) AS usual_bytes FROM bursts WHERE step IS NULL)
    CROSS JOIN thresholds
    GROUP BY run_id
), judged AS (
    SELECT run_id, c.found_by, steps, waiting_share, slope, slope_error, pairs, all_pairs, fewest, most, seen_pairs, training_pairs,
           CASE WHEN waiting_share >= least_waiting_share
                THEN NOT coalesce(slope + slope_errors * slope_error < least_slope AND steps >= slope_steps, false)
                WHEN waiting_share < least_waiting_share AND c.found_by = 'pairs' AND seen_pairs = training_pairs THEN false
                WHEN c.run_id IS NULL AND is_equal AND 2 * pairs > all_pairs AND most > fewest + 1 AND most % fewest > 0
                     THEN false END AS is_synchronous,
           c.run_id IS NOT NULL AND coalesce(is_synchronous, coalesce(waiting_share, 1) >= least_doubtful_share) AS structured
    FROM runs
    LEFT JOIN chosen USING (run_id)
    LEFT JOIN candidates AS c USING (run_id, found_by)
    LEFT JOIN slopes USING (run_id, found_by)
    LEFT JOIN ways USING (run_id, found_by)
    LEFT JOIN rates USING (run_id)
    CROSS JOIN thresholds
)
SELECT j.run_id, structured, step, step_start_ns AS start_ns, step_end_ns AS end_ns, payload_bytes, pause_before_ms,
       (end_ns - lag(end_ns) OVER (PARTITION BY j.run_id ORDER BY step)) / 1e6 AS period_ms,
       confidence * CASE WHEN v.problem IS NULL THEN 1 ELSE covered_hosts / hosts END AS confidence, CASE WHEN structured THEN j.found_by END AS found_by, waiting_share, is_synchronous,
       concat_ws('; ', CASE WHEN is_synchronous AND structured
                 THEN format('synchronous: hosts wait for each other in {:.0f}% of {} steps', 100 * waiting_share, steps)
            WHEN structured AND waiting_share IS NOT NULL
                 THEN format('hosts wait for each other in {:.0f}% of {} steps: synchronous if these are divided badly', 100 * waiting_share, steps)
            WHEN structured THEN format('{} steps; whether hosts wait for each other cannot be told, since some only send', steps)
            WHEN waiting_share >= least_waiting_share AND NOT is_synchronous
                 THEN format('asynchronous: an answer comes {:.2f} ms later (standard error {:.2f}) for each ms that the last gradients are late, in {} steps',
                             slope, slope_error, steps)
            WHEN waiting_share IS NOT NULL AND NOT is_synchronous
                 THEN format('asynchronous: each pair pauses after equal payloads, {} times, but hosts wait for each other in {:.0f}% of these',
                             steps, 100 * waiting_share)
            WHEN NOT is_synchronous
                 THEN format('asynchronous: pairs send the same payload at once, but {} to {} times', fewest, most)
            WHEN waiting_share IS NOT NULL AND j.found_by = 'pairs'
                 THEN format('{} of {} pairs pause after equal payloads, {} times; whether hosts wait for the others cannot be told',
                             seen_pairs, training_pairs, steps)
            WHEN waiting_share IS NOT NULL
                 THEN format('pauses of the run give {} stretches, but hosts wait in {:.0f}% of these: asynchronous, or divided wrongly',
                             steps, 100 * waiting_share)
            WHEN j.run_id NOT IN (SELECT run_id FROM flow_windows) THEN 'cannot be told: no flow_windows'
            WHEN u.problem IS NOT NULL THEN 'cannot be told: ' || u.problem
            WHEN pairs IS NOT NULL
                 THEN format('{} of {} pairs pause after equal payloads, {} times: no step that is common, or rounds of a step',
                             pairs, all_pairs, CASE WHEN fewest = most THEN most::VARCHAR ELSE fewest || ' to ' || most END)
            ELSE 'no pauses after equal payloads, neither of the run nor of its pairs' END,
           CASE WHEN covered_hosts < hosts AND v.problem IS NOT NULL
                THEN format('captures cover {} of {} hosts: parts of a step may pass for steps', covered_hosts, hosts) END) AS evidence
FROM judged AS j
CROSS JOIN thresholds
LEFT JOIN capture_coverage AS v USING (run_id)
LEFT JOIN unknown_payload AS u USING (run_id)
LEFT JOIN found ON structured AND found.run_id = j.run_id AND found.found_by = j.found_by
ORDER BY j.run_id, step
