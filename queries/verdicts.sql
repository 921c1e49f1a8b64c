-- question: Which host or link makes each training job slow, and what does it cost?
-- subject: delays
-- row: a run, a job and a finding, the costliest first, behind it those that chance may explain; a job that nothing delays has none
-- inputs: hosts, job_periods, communicators, collective_transfers, collective_entries, edge_times, edge_causes, edge_marks, stragglers, worker_hosts, late_traffic, clock_differences, links_sent_again, beside_jobs, job_servers
-- optional: stragglers
-- answer: rank, sentence
-- column: run_id from job_periods
-- column: job from job_periods
-- column: rank; 1 is the costliest of the job; those that are not established come last
-- column: kind; slow_host, loss, or what a link loses most by: slow_link, delay (a longer way), receiver (its window), background (other traffic), congestion (other traffic of several senders to one host at once, or ECN marks)
-- column: host_ip; address of the host, of the link's sender, or of the end that slow links share; null where the loss is on most links
-- column: peer_ip; address of the link's receiver; null for a host, and where several links of the host are concerned: all from it, all to it, or both, as the sentence says
-- column: cost_ms ms; mean over the steps behind the first
-- column: share_of_step ratio; cost_ms over the mean step
-- column: confidence; explained_share times 1 - p_value, of a host or a delay times the part of the cost that is beyond twice what clocks differ by (clock_differences): no calibrated probability
-- column: explained_share share; part of the time that is lost in this way in the job: by the host, or on the link; of a host in a part of the run or beside it in these steps
-- column: p_value; probability that some host (link) is the worst as often by chance
-- column: is_established; p_value is 0.05 or less, and clocks differ by less than half of the cost
-- column: steps_worst steps; in which it lost most: k
-- column: steps_lost steps; behind the first, in which a host (link) lost 5% of the mean step: n
-- column: sentence from links_sent_again
-- The unit is a step of this run: what lasts for some steps makes them depend on each other, and says nothing of other runs. p_value is
-- the binomial tail of k in n, times the hosts (links). Costs are those of the n steps.
-- Two hosts may be slow one after the other. So a host whose steps are one part of the run, as below, is tested in this part, too, and each other host
-- beside it: of these n steps it must explain 55%. p_value is then times the parts that n steps of the whole run have, n(n+1)/2, and 0.05 at most.
-- A host's cost is its own time beyond the median of hosts with as many partners in the same collective, but no more than it enters behind
-- all hosts of the collective: in a tree an inner host may enter behind its equal, while all wait for a leaf. So it is what a step gains
-- without this lateness alone, and a lower bound where others enter late, too: the sentence says "at least" where its own time is more
-- by 5%, and how much that is. Where the programs' events (stragglers) say that waiting for another host of the job costs more than half
-- of the cost, the host is not called slow. Hosts of unlike roles are compared with their own median over the steps, but no more than the
-- step is longer than the median step: only what changes in the run is seen. Of two hosts none is called slow.
-- What the workers of several servers first send in a step (job_servers) counts as one collective among them.
-- Where a host has other traffic during half of its lateness (late_traffic), as a checkpoint that it writes to a file server, the sentence says so.
-- An inner stage of a pipeline of four and more is slow, too, where its own times of a step are 1.5 times those of the stage that needs next longest: a
-- pipeline is as fast as its slowest stage, so the difference is the cost. What it sends to one neighbour is made of what it got from the other, message by
-- message, and begun when it has sent the one before. A step in which a message begins before its data is there, since several are not told apart, counts
-- for no stage. First and last stages do something else, and are named for no such.
-- Other traffic that shares a link is counted on the wire in the link's collectives behind the first step (edge_causes); beside_jobs, whose largest part is
-- named, has its payload from the first step to the last.
-- Of a link whose bytes come late (links_sent_again) the sentence says so: lost before they are captured, or overtaken. That is no kind: nothing tells which.
-- Steps in which it lost most are named where they are one part of the run: at least three, four fifths of those from the first to the last,
-- and this part at most four fifths of the job's steps, and three fewer. Where they are not, those that cost half of their mean or more are, if
-- four fifths of the cost are in this part.
-- A link's cost is stalled_ms of edge_times (loss), or excess_ms there and late_ms of edge_causes. What is not seen: a cause that all hosts share, and one that
-- is there in all steps of hosts of unlike roles. Links from one host, or to it, are one finding where all of them carry at most 60% of what similar links do
-- and together explain the time: they share its cable. Where they send at once, the time counts once.
WITH thresholds AS (
    SELECT 0.05 AS least_share,                       -- of the mean step
           0.2 AS most_p, 0.05 AS likely_p, 0.55 AS least_explained,
           0.3 AS most_elsewhere, 0.9 AS most_links,  -- of a host with several slow links: what others lose, over what they would by chance
           0.75 AS least_of_link,                     -- of what the links of a host lose: one link alone
           0.75 AS least_of_one,                      -- of what several links send again: one of them is named
           0.8 AS slow_part, 0.6 AS slow_shared_part, -- of the usual rate, the second where the ends have several links
           0.0002 AS least_again, 0.1 AS other_part,  -- of the payload: sent again, of other traffic
           0.01 AS least_late,                        -- of the payload: behind bytes that follow it
           0.67 AS most_again,                        -- of the payload: sent again; more are copies (the check captured_copies)
           0.5 AS least_cause,                        -- of the cost: where the window is small, where the way is longer
           1.05 AS least_beyond,                      -- own time beyond the others' over the cost, which is a lower bound then
           1.5 AS times_as_long,                      -- as the next, a slow stage of a pipeline
           3 AS least_steps, 0.8 AS most_steps,       -- a part of the run: in it, and beside it; of the job's, and so many of its own are lost at least
           0.5 AS least_main, 0.8 AS least_in_part,   -- of the mean cost of those in which it lost most: steps that bound a part; of its cost, in the part
           0.5 AS least_logged                        -- of the cost: that of waiting for another host by the log, which contradicts
), ends AS (
    SELECT run_id, job, step, max(last_ns) AS end_ns
    FROM collective_transfers
    GROUP BY run_id, job, step
), longer AS (
    SELECT run_id, job, step, took_ms - median(took_ms) OVER (PARTITION BY run_id, job) AS longer_ms
    FROM (SELECT *, (end_ns - lag(end_ns) OVER (PARTITION BY run_id, job ORDER BY step)) / 1e6 AS took_ms FROM ends)
), workers AS (
    FROM job_servers
    WHERE NOT is_server
), entries AS (
    FROM collective_entries
    ANTI JOIN workers USING (run_id, job, host_ip)
    UNION ALL BY NAME
    SELECT run_id, job, step, -1 AS "position", host_ip, min(entry_ns) AS entry_ns, arg_min(own_ms, entry_ns) AS own_ms,
           arg_min(is_waiting, entry_ns) AS is_waiting, any_value(servers) AS partners
    FROM collective_entries
    JOIN workers USING (run_id, job, host_ip)
    GROUP BY ALL
), entered AS (
    SELECT e.*, longer_ms, "position" * 1000 + partners AS place,
           median(own_ms) OVER (PARTITION BY run_id, job, "position", host_ip) AS usual_ms
    FROM entries AS e
    JOIN longer USING (run_id, job, step)
    JOIN job_periods USING (run_id, job)
    WHERE step > 0 AND own_ms IS NOT NULL AND NOT is_waiting AND len(string_split(hosts, ',')) > 2
), siblings AS (
    SELECT *, list(own_ms) OVER equals AS others_ms, max(entry_ns) OVER others AS before_ns
    FROM entered
    WINDOW equals AS (PARTITION BY run_id, job, step, place ORDER BY entry_ns
                      ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE CURRENT ROW),
           others AS (PARTITION BY run_id, job, step, "position" ORDER BY entry_ns
                      ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE CURRENT ROW)
), host_costs AS (
    SELECT run_id, job, step, "position", 'slow_host' AS kind, host_ip, NULL AS peer_ip,
           greatest(0, CASE WHEN others_ms IS NULL THEN least(own_ms - usual_ms, longer_ms)
                            ELSE least(own_ms - list_median(others_ms), (entry_ns - before_ns) / 1e6) END) AS cost_ms,
           own_ms - list_median(others_ms) AS beyond_ms
    FROM siblings
    -- a host enters the channels of a communicator at once
    QUALIFY row_number() OVER (PARTITION BY run_id, job, step, host_ip, entry_ns ORDER BY cost_ms DESC, "position") = 1
), stages AS (  -- of jobs that are a pipeline and nothing else
    SELECT *, count(*) FILTER (neighbours = 2) OVER (PARTITION BY run_id, job) AS inner_stages
    FROM (SELECT run_id, job, host_ip, count(*) AS neighbours
          FROM (SELECT *, unnest(string_split(hosts, ',')) AS host_ip, bool_and(role = 'pipeline') OVER (PARTITION BY run_id, job) AS is_pipeline FROM communicators)
          WHERE is_pipeline
          GROUP BY run_id, job, host_ip)
), stage_sends AS (
    SELECT *, row_number() OVER (of_link ORDER BY first_ns, "position", flow_id) AS number, count(*) OVER (PARTITION BY run_id, job, step, src_ip, dst_ip) AS messages,
           max(first_ns) OVER (PARTITION BY run_id, job, src_ip ORDER BY first_ns, "position", flow_id
                               ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before_ns
    FROM collective_transfers
    SEMI JOIN stages USING (run_id, job)
    WINDOW of_link AS (PARTITION BY run_id, job, src_ip, dst_ip)
), turns AS (  -- what an inner stage sends on, and from where it has it
    SELECT DISTINCT o.run_id, o.job, o.src_ip AS host_ip, o.dst_ip, i.src_ip AS from_ip, inner_stages
    FROM stage_sends AS o
    JOIN stages AS t ON t.run_id = o.run_id AND t.job = o.job AND t.host_ip = o.src_ip AND neighbours = 2
    JOIN stage_sends AS i ON i.run_id = o.run_id AND i.job = o.job AND i.dst_ip = o.src_ip AND i.src_ip <> o.dst_ip
), behind AS (  -- how many more it has sent than it had got
    SELECT o.*, from_ip, inner_stages,
           max(o.number - coalesce(i.number, 0)) OVER (PARTITION BY o.run_id, o.job, o.step, o.src_ip, o.dst_ip) AS before_first
    FROM stage_sends AS o
    JOIN turns AS t ON t.run_id = o.run_id AND t.job = o.job AND t.host_ip = o.src_ip AND t.dst_ip = o.dst_ip
    ASOF LEFT JOIN (SELECT run_id, job, src_ip, dst_ip, first_ns, max(number) AS number FROM stage_sends GROUP BY ALL) AS i
      ON i.run_id = o.run_id AND i.job = o.job AND i.src_ip = from_ip AND i.dst_ip = o.src_ip AND o.first_ns >= i.first_ns
), computed AS (  -- what each inner stage needs for a step
    SELECT o.run_id, o.job, o.step, o.src_ip AS host_ip, inner_stages,
           sum(greatest(0, coalesce(entry_ns, o.first_ns) - greatest(o.before_ns, i.last_ns))) / 1e6 AS own_ms,
           bool_and(o.messages = i.messages AND o.first_ns >= i.last_ns) AS is_told
    FROM behind AS o
    JOIN stage_sends AS i
      ON i.run_id = o.run_id AND i.job = o.job AND i.src_ip = from_ip AND i.dst_ip = o.src_ip AND i.number = o.number - before_first
    LEFT JOIN collective_entries AS e  -- it may wait for its receiver
      ON e.run_id = o.run_id AND e.job = o.job AND e.step = o.step AND e."position" = o."position" AND e.host_ip = o.src_ip
    WHERE o.step > 0
    GROUP BY ALL
), bottlenecks AS (
    SELECT run_id, job, step, host_ip, CASE WHEN own_ms >= times_as_long * next_ms THEN own_ms - next_ms ELSE 0 END AS cost_ms
    FROM (SELECT *, count(*) FILTER (is_told) OVER of_step AS told, max(own_ms) OVER others AS next_ms
          FROM computed
          WINDOW of_step AS (PARTITION BY run_id, job, step),
                 others AS (of_step ORDER BY host_ip ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE CURRENT ROW))
    CROSS JOIN thresholds
    WHERE told = inner_stages AND inner_stages > 1
), late_hosts AS (
    SELECT run_id, job, step, host_ip, greatest(late_ms, coalesce(b.cost_ms, 0)) AS cost_ms,
           CASE WHEN late_ms >= coalesce(b.cost_ms, 0) THEN late_beyond_ms END AS beyond_ms
    FROM (SELECT run_id, job, step, host_ip, sum(cost_ms) AS late_ms, sum(beyond_ms) AS late_beyond_ms FROM host_costs GROUP BY ALL)
    LEFT JOIN bottlenecks AS b USING (run_id, job, step, host_ip)
), speeds AS (
    SELECT run_id, job, src_ip, dst_ip, sum(payload_bytes) AS payload_bytes, sum(payload_bytes) / sum(sending_ms) * 8 / 1e6 AS gbit_per_s,
           any_value(usual_gbit_per_s) AS usual_gbit_per_s, bool_or(is_shared) AS is_shared, coalesce(sum(retransmitted_bytes), 0) AS retransmitted_bytes
    FROM edge_times
    WHERE step > 0
    GROUP BY run_id, job, src_ip, dst_ip
), link_costs AS (
    SELECT run_id, job, step, "position", kind, src_ip AS host_ip, dst_ip AS peer_ip,
           CASE kind WHEN 'loss' THEN stalled_ms ELSE greatest(excess_ms, 0) + late_ms END AS cost_ms, NULL AS beyond_ms
    FROM (SELECT *, unnest(['slow_link', 'loss']) AS kind FROM edge_causes WHERE step > 0)
    JOIN speeds USING (run_id, job, src_ip, dst_ip)
    CROSS JOIN thresholds
    WHERE kind <> 'loss' OR retransmitted_bytes <= most_again * payload_bytes
), touched AS (
    SELECT run_id, job, end_ip AS host_ip, count(*) / any_value(links) AS link_share
    FROM (SELECT *, unnest([src_ip, dst_ip]) AS end_ip, count(*) OVER (PARTITION BY run_id, job) AS links FROM speeds)
    GROUP BY run_id, job, end_ip
), ways AS (
    SELECT run_id, job, way, CASE way WHEN 'from' THEN src_ip ELSE dst_ip END AS host_ip, count(*) AS links,
           bool_and(coalesce(gbit_per_s <= slow_shared_part * usual_gbit_per_s, false)) AS is_slow
    FROM (SELECT *, unnest(['from', 'to']) AS way FROM speeds)
    CROSS JOIN thresholds
    GROUP BY ALL
    HAVING count(*) > 1
), busy AS (
    SELECT run_id, job, step, way, host_ip, sum(greatest(last_ns - greatest(first_ns, before_ns), 0)) / 1e6 AS busy_ms
    FROM (SELECT *, max(last_ns) OVER (PARTITION BY run_id, job, step, way, host_ip ORDER BY first_ns, last_ns
                                       ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before_ns
          FROM (SELECT *, unnest(['from', 'to']) AS way, CASE way WHEN 'from' THEN src_ip ELSE dst_ip END AS host_ip FROM collective_transfers))
    GROUP BY ALL
), costs AS (
    SELECT run_id, job, step, 'slow_host' AS kind, host_ip, NULL AS peer_ip, 1 AS level, cost_ms, beyond_ms,
           'both' AS way  -- of a host's links: from it, to it, or both
    FROM late_hosts
    UNION ALL
    SELECT run_id, job, step, kind, host_ip, peer_ip, 1, sum(cost_ms), NULL, 'both'
    FROM link_costs
    GROUP BY ALL
    UNION ALL  -- all links of a host, which send at the same time; not of one that has all links of the job
    SELECT run_id, job, step, kind, host_ip, NULL, 2, sum(cost_ms), NULL, 'both'
    FROM (SELECT run_id, job, step, "position", kind, end_ip AS host_ip, max(cost_ms) AS cost_ms
          FROM (SELECT *, unnest([host_ip, peer_ip]) AS end_ip FROM link_costs)
          GROUP BY ALL)
    JOIN touched USING (run_id, job, host_ip)
    CROSS JOIN thresholds
    WHERE link_share < most_links
    GROUP BY ALL
    UNION ALL  -- all links from a host, or all to it; where they send at once they share its rate, and the time counts once
    SELECT run_id, job, step, kind, host_ip, NULL, 2, least(sum(cost_ms), any_value(busy_ms)), NULL, way
    FROM (SELECT run_id, job, step, "position", kind, way, CASE way WHEN 'from' THEN host_ip ELSE peer_ip END AS host_ip, max(cost_ms) AS cost_ms
          FROM (SELECT *, unnest(['from', 'to']) AS way FROM link_costs WHERE kind = 'slow_link')
          GROUP BY ALL)
    SEMI JOIN ways USING (run_id, job, way, host_ip)
    JOIN touched USING (run_id, job, host_ip)
    JOIN busy USING (run_id, job, step, way, host_ip)
    CROSS JOIN thresholds
    WHERE link_share < most_links
    GROUP BY run_id, job, step, kind, host_ip, way
    UNION ALL
    SELECT run_id, job, step, kind, NULL, NULL, 3, sum(cost_ms), NULL, 'both'
    FROM (SELECT run_id, job, step, "position", kind, max(cost_ms) AS cost_ms FROM link_costs WHERE kind = 'loss' GROUP BY ALL)
    GROUP BY ALL
), lengths AS (
    SELECT run_id, job, count(*) - 1 AS behind_first, (max(end_ns) - min(end_ns)) / 1e6 / behind_first AS step_ms
    FROM ends
    GROUP BY run_id, job
    HAVING behind_first > 0
), judged AS MATERIALIZED (
    SELECT c.*, behind_first, step_ms, max(cost_ms) OVER of_one >= least_share * step_ms AS is_lost,
           cost_ms = max(cost_ms) OVER of_one AS is_most
    FROM costs AS c
    JOIN lengths USING (run_id, job)
    CROSS JOIN thresholds
    WINDOW of_one AS (PARTITION BY run_id, job, step, kind, level, way)
), worst AS (
    SELECT *, is_lost AND is_most AS is_worst, count(*) FILTER (is_lost AND is_most) OVER of_unit AS worst,
           min(step) FILTER (is_lost AND is_most) OVER of_unit AS first_worst, max(step) FILTER (is_lost AND is_most) OVER of_unit AS last_worst,
           avg(cost_ms) FILTER (is_lost AND is_most) OVER of_unit AS mean_ms
    FROM judged
    WINDOW of_unit AS (PARTITION BY run_id, job, kind, level, way, host_ip, peer_ip)
), bounded AS (  -- by all of these steps, or by those that cost most
    SELECT *, is_worst AND (cost_ms >= least_main * mean_ms
                            OR last_worst - first_worst + 1 <= least(most_steps * behind_first, behind_first - least_steps)
                               AND worst >= greatest(least_steps, most_steps * (last_worst - first_worst + 1))) AS is_bound
    FROM worst
    CROSS JOIN thresholds
), sized AS (
    SELECT *, count(*) FILTER (is_bound) OVER of_unit AS bounds, min(step) FILTER (is_bound) OVER of_unit AS first_step,
           max(step) FILTER (is_bound) OVER of_unit AS last_step
    FROM bounded
    WINDOW of_unit AS (PARTITION BY run_id, job, kind, level, way, host_ip, peer_ip)
), units AS (
    SELECT run_id, job, kind, level, way, host_ip, peer_ip, sum(cost_ms) FILTER (is_lost) AS total_ms, count(*) FILTER (is_lost) AS n,
           count(*) FILTER (is_lost AND is_most) AS k, any_value(behind_first) AS steps, total_ms / steps AS cost_ms, any_value(step_ms) AS step_ms,
           sum(beyond_ms) FILTER (is_lost) / steps AS beyond_ms, first_step, last_step,
           sum(cost_ms) FILTER (is_lost AND step BETWEEN first_step AND last_step) / total_ms AS part_share,
           last_step - first_step + 1 <= least(any_value(most_steps) * steps, steps - any_value(least_steps))
           AND bounds >= greatest(any_value(least_steps), any_value(most_steps) * (last_step - first_step + 1))
           AND part_share >= any_value(least_in_part) AS is_part
    FROM sized
    GROUP BY run_id, job, kind, level, way, host_ip, peer_ip, bounds, first_step, last_step
), scopes AS (  -- a host in a part of the run; other hosts beside that part
    SELECT run_id, job, host_ip, 'part' AS scope, first_step AS begin_step, last_step AS end_step
    FROM units
    WHERE kind = 'slow_host' AND is_part
    UNION ALL
    SELECT run_id, job, u.host_ip, 'rest', p.first_step, p.last_step
    FROM units AS u
    JOIN units AS p USING (run_id, job, kind)
    WHERE kind = 'slow_host' AND p.is_part AND u.host_ip <> p.host_ip
), scoped AS (
    SELECT s.run_id, s.job, s.host_ip, scope, begin_step, end_step, count(DISTINCT step) AS n,
           count(*) FILTER (j.host_ip = s.host_ip AND is_most) AS k, sum(cost_ms) FILTER (j.host_ip = s.host_ip) / sum(cost_ms) AS explained_share
    FROM scopes AS s
    JOIN (FROM judged WHERE kind = 'slow_host' AND is_lost) AS j
      ON s.run_id = j.run_id AND s.job = j.job AND (step BETWEEN begin_step AND end_step) = (scope = 'part')
    GROUP BY ALL
), touching AS (
    SELECT run_id, job, kind, touching_way AS way, end_ip AS host_ip, sum(total_ms) AS own_ms
    FROM (SELECT *, unnest(['both', 'both', 'from', 'to']) AS touching_way, unnest([host_ip, peer_ip, host_ip, peer_ip]) AS end_ip
          FROM units
          WHERE level = 1 AND peer_ip IS NOT NULL)
    GROUP BY run_id, job, kind, touching_way, end_ip
), explained AS (
    SELECT u.*, cost_ms / step_ms AS share_of_step, count(*) OVER (PARTITION BY run_id, job, kind, level, way) AS rivals,
           link_share, coalesce(is_slow, false) AS is_slow,
           CASE level WHEN 1 THEN total_ms WHEN 2 THEN own_ms ELSE sum(total_ms) FILTER (level = 1) OVER of_kind END
           / sum(total_ms) FILTER (level = 1) OVER of_kind AS explained_share
    FROM units AS u
    LEFT JOIN touching USING (run_id, job, kind, way, host_ip)
    LEFT JOIN touched USING (run_id, job, host_ip)
    LEFT JOIN ways USING (run_id, job, way, host_ip)
    WINDOW of_kind AS (PARTITION BY run_id, job, kind)
), in_scopes AS (
    SELECT *, 'run' AS scope, 1 AS choices
    FROM explained
    UNION ALL BY NAME
    SELECT e.* EXCLUDE (n, k, explained_share), s.n, s.k, s.explained_share, scope, begin_step, end_step, e.n * (e.n + 1) / 2 AS choices
    FROM explained AS e
    JOIN scoped AS s USING (run_id, job, host_ip)
    WHERE kind = 'slow_host'
), tested AS (
    SELECT *, CASE WHEN level = 3 THEN 0 WHEN rivals = 1 THEN 1 ELSE least(1, rivals * choices * (
               SELECT sum(exp(lgamma(n + 1) - lgamma(i + 1) - lgamma(n - i + 1) + i * ln(chance)
                              + CASE WHEN i = n THEN 0 ELSE (n - i) * ln(1 - chance) END))
               FROM (SELECT unnest(range(k, n + 1)) AS i))) END AS p_value
    FROM (SELECT *, least(1, CASE WHEN level = 2 AND way = 'both' THEN 2 ELSE 1 END / rivals) AS chance FROM in_scopes)
    CROSS JOIN thresholds
    WHERE share_of_step >= least_share
), found AS (
    SELECT t.*, max(explained_share) FILTER (level = 1) OVER of_kind AS of_link,
           max(explained_share) FILTER (way <> 'both') OVER of_kind AS of_way, max(explained_share) FILTER (level = 2) OVER of_kind AS of_host
    FROM tested AS t
    WHERE p_value <= if(scope = 'run', most_p, likely_p) AND (CASE WHEN level = 2 AND way = 'both' THEN 1 - explained_share <= most_elsewhere * (1 - link_share)
                               ELSE explained_share >= least_explained AND (level <> 2 OR is_slow) END)
    WINDOW of_kind AS (PARTITION BY run_id, job, kind)
), logged AS (
    SELECT run_id, host_ip, sum(cost_ms) FILTER (is_last) AS last_ms
    FROM stragglers
    JOIN worker_hosts USING (run_id, worker)
    WHERE measured_by = 'events'
    GROUP BY run_id, host_ip
), costliest_logged AS (
    SELECT run_id, job, arg_max(host_ip, last_ms) AS logged_ip, max(last_ms) AS logged_ms
    FROM job_periods
    JOIN logged USING (run_id)
    WHERE list_contains(string_split(hosts, ','), host_ip)
    GROUP BY run_id, job
), candidates AS (
    FROM found
    LEFT JOIN costliest_logged USING (run_id, job)
    WHERE kind <> 'slow_host' OR coalesce(logged_ip = host_ip OR logged_ms < least_logged * total_ms, true)
    QUALIFY row_number() OVER (
        PARTITION BY run_id, job, kind, scope, if(scope = 'part', host_ip, NULL)
        ORDER BY CASE WHEN level = 2 AND of_link >= least_of_link * of_host
                        OR level = 1 AND peer_ip IS NOT NULL AND of_link < least_of_link * of_host
                        OR level = 2 AND way = 'both' AND of_way >= least_of_link * of_host
                        OR level = 2 AND way <> 'both' AND of_way < least_of_link * of_host THEN 4 ELSE level END,
                 explained_share DESC, host_ip, peer_ip) = 1
), chosen AS (
    FROM candidates
    QUALIFY row_number() OVER (PARTITION BY run_id, job, kind, host_ip, peer_ip
                               ORDER BY CASE WHEN scope = 'run' AND p_value <= likely_p THEN 0 WHEN scope = 'run' THEN 3 WHEN scope = 'part' THEN 1 ELSE 2 END) = 1
), links AS (
    SELECT c.run_id, c.job, c.kind, sum(payload_bytes) AS payload_bytes, min(gbit_per_s) AS gbit_per_s,
           arg_min(usual_gbit_per_s, gbit_per_s) AS usual_gbit_per_s, bool_or(is_shared) AS is_shared, sum(retransmitted_bytes)::BIGINT AS retransmitted_bytes,
           coalesce(sum(late_bytes), 0)::BIGINT AS late_bytes,
           arg_max(format('{} to {}', coalesce(x.label, s.src_ip), coalesce(y.label, s.dst_ip)), (retransmitted_bytes, s.src_ip, s.dst_ip)) AS most_lost,
           max(retransmitted_bytes) / nullif(sum(retransmitted_bytes), 0) AS most_lost_share
    FROM chosen AS c
    JOIN speeds AS s
      ON c.run_id = s.run_id AND c.job = s.job AND s.dst_ip = coalesce(c.peer_ip, s.dst_ip)
         AND (c.host_ip IS NULL OR c.host_ip = s.src_ip AND c.way <> 'to' OR c.host_ip = s.dst_ip AND c.way <> 'from')
    LEFT JOIN links_sent_again AS l ON l.run_id = s.run_id AND l.job = s.job AND l.src_ip = s.src_ip AND l.dst_ip = s.dst_ip
    LEFT JOIN hosts AS x ON s.run_id = x.run_id AND s.src_ip = x.host_ip
    LEFT JOIN hosts AS y ON s.run_id = y.run_id AND s.dst_ip = y.host_ip
    WHERE c.kind <> 'slow_host'
    GROUP BY c.run_id, c.job, c.kind
), causes AS (
    SELECT c.run_id, c.job, c.kind, sum(other_bytes)::BIGINT AS other_bytes, sum(incast_bytes)::BIGINT AS incast_bytes,
           min(window_bytes) FILTER (is_window_small) AS window_bytes, avg(extra_ms) FILTER (extra_ms > 0) AS extra_ms,
           max(marked_share) FILTER (is_marked) AS marked_share, sum(link_ms) FILTER (is_marked) / sum(link_ms) AS marked_cost,
           sum(link_ms) FILTER (is_window_small) / sum(link_ms) AS window_share,
           sum(link_ms) FILTER (extra_ms > 0 AND CASE way WHEN 'from' THEN least_from_ms > 0 WHEN 'to' THEN least_to_ms > 0 ELSE true END) / sum(link_ms) AS delay_share
    FROM chosen AS c
    JOIN (SELECT *, greatest(excess_ms, 0) + late_ms AS link_ms,
                 -- a longer way of a host makes all of its links answer later, its queue one or the other
                 min(extra_ms) OVER (PARTITION BY run_id, job, step, src_ip) AS least_from_ms, min(extra_ms) OVER (PARTITION BY run_id, job, step, dst_ip) AS least_to_ms
          FROM edge_causes
          WHERE step > 0) AS e
      ON c.run_id = e.run_id AND c.job = e.job AND e.dst_ip = coalesce(c.peer_ip, e.dst_ip)
         AND (c.host_ip = e.src_ip AND c.way <> 'to' OR c.host_ip = e.dst_ip AND c.way <> 'from')
    LEFT JOIN edge_marks AS m ON m.run_id = e.run_id AND m.job = e.job AND m.src_ip = e.src_ip AND m.dst_ip = e.dst_ip
    WHERE c.kind = 'slow_link'
    GROUP BY c.run_id, c.job, c.kind
), met AS (  -- what goes most out of the link's sender, or in to its receiver, beside the job
    SELECT c.run_id, c.job, c.kind, format(', most from {} to {}{}', arg_max(coalesce(x.label, b.src_ip), (payload_bytes, b.src_ip, b.dst_ip)),
                                           arg_max(coalesce(y.label, b.dst_ip), (payload_bytes, b.src_ip, b.dst_ip)),
                                           coalesce(', port ' || arg_max(port, (payload_bytes, b.src_ip, b.dst_ip)), '')) AS met_by
    FROM chosen AS c
    JOIN beside_jobs AS b
      ON c.run_id = b.run_id AND c.job = b.job AND (c.host_ip = b.src_ip AND way <> 'to' OR coalesce(c.peer_ip, c.host_ip) = b.dst_ip AND way <> 'from')
    LEFT JOIN hosts AS x ON b.run_id = x.run_id AND b.src_ip = x.host_ip
    LEFT JOIN hosts AS y ON b.run_id = y.run_id AND b.dst_ip = y.host_ip
    WHERE c.kind = 'slow_link'
    GROUP BY c.run_id, c.job, c.kind
), named AS (
    SELECT c.* REPLACE (CASE WHEN c.kind <> 'slow_link' THEN c.kind
                             WHEN other_bytes > other_part * payload_bytes THEN CASE WHEN 2 * incast_bytes > other_bytes THEN 'congestion' ELSE 'background' END
                             WHEN marked_cost >= least_cause THEN 'congestion'
                             WHEN window_share >= least_cause THEN 'receiver'
                             WHEN delay_share >= least_cause THEN 'delay'
                             ELSE c.kind END AS kind),
           gbit_per_s, usual_gbit_per_s, is_shared, retransmitted_bytes, late_bytes, CASE WHEN most_lost_share > least_of_one THEN most_lost END AS most_lost, payload_bytes, other_bytes, window_bytes, extra_ms, activity, met_by,
           marked_share, other_bytes > other_part * payload_bytes AS is_met, coalesce(beyond_ms > least_beyond * cost_ms, false) AS is_bound,
           coalesce(a.label, c.host_ip) AS host, coalesce(b.label, c.peer_ip) AS peer,
           CASE WHEN peer IS NOT NULL THEN format('The link {} to {}', host, peer)
                WHEN way <> 'both' THEN format('All links {} {}', way, host)
                WHEN host IS NOT NULL THEN format('The links of {}', host)
                WHEN most_lost_share > least_of_one THEN 'Several links' ELSE 'Most links' END AS link, CASE WHEN peer IS NULL THEN '' ELSE 's' END AS s
    FROM chosen AS c
    LEFT JOIN links USING (run_id, job, kind)
    LEFT JOIN causes USING (run_id, job, kind)
    LEFT JOIN met USING (run_id, job, kind)
    LEFT JOIN late_traffic AS t ON c.run_id = t.run_id AND c.job = t.job AND c.host_ip = t.host_ip
    LEFT JOIN hosts AS a ON c.run_id = a.run_id AND c.host_ip = a.host_ip
    LEFT JOIN hosts AS b ON c.run_id = b.run_id AND c.peer_ip = b.host_ip
), clocked AS (  -- of these kinds two times are compared, each between two hosts
    SELECT named.*, CASE WHEN kind IN ('slow_host', 'delay') THEN coalesce(2 * difference_ms, 0) ELSE 0 END AS apart_ms,
           p_value <= likely_p AND apart_ms < cost_ms AS is_established
    FROM named
    LEFT JOIN (SELECT run_id, max(difference_ms) AS difference_ms FROM clock_differences GROUP BY run_id) USING (run_id)
)
SELECT run_id, job, row_number() OVER (PARTITION BY run_id, job ORDER BY is_established DESC, cost_ms DESC, kind, host_ip) AS rank, kind, host_ip, peer_ip,
       cost_ms, share_of_step, explained_share * (1 - p_value) * greatest(0, 1 - apart_ms / cost_ms) AS confidence, explained_share, p_value, is_established, k AS steps_worst, n AS steps_lost,
       CASE kind
            WHEN 'slow_host' THEN format('{} is late in {} of {} steps behind the first{}', host, k, steps,
                                         CASE WHEN n > k THEN format(', another host in {}', n - k) ELSE '' END)
            WHEN 'loss' THEN format('{} pause{} for {} sent again, {}% of the {:.1f} MB of all steps{}', link, s,
                                    CASE WHEN retransmitted_bytes < 1e5 THEN format('{:.3g} kB', retransmitted_bytes / 1e3)
                                         ELSE format('{:.1f} MB', retransmitted_bytes / 1e6) END,
                                    format(CASE WHEN 10 * retransmitted_bytes < payload_bytes THEN '{:.2g}' ELSE '{:.0f}' END,
                                           100 * retransmitted_bytes / payload_bytes), payload_bytes / 1e6,
                                    CASE WHEN host IS NULL THEN coalesce(', most of it from ' || most_lost, '') ELSE '' END)
            WHEN 'delay' THEN format('{} answer{} {} ms later than other links', link, s,
                                     format(CASE WHEN extra_ms < 100 THEN '{:.3g}' ELSE '{:.0f}' END, extra_ms))
            ELSE format('{} carr{} {:.3g} Gbit/s{} where similar links carry {:.3g} Gbit/s', link, CASE s WHEN '' THEN 'y' ELSE 'ies' END, gbit_per_s,
                        CASE WHEN is_part THEN ' on average' ELSE '' END, usual_gbit_per_s) END
       || format(': {}{} ms of {} ms a step ({:.0f}%)', CASE WHEN is_bound THEN 'at least ' ELSE '' END,
                 format(CASE WHEN cost_ms < 100 THEN '{:.3g}' ELSE '{:.0f}' END, cost_ms),
                 format(CASE WHEN step_ms < 1000 THEN '{:.4g}' ELSE '{:.0f}' END, step_ms), 100 * share_of_step)
       || CASE WHEN scope = 'rest' THEN format(', beside steps {} to {}', begin_step, end_step)
               WHEN is_part THEN format(', {} in steps {} to {}', CASE WHEN part_share >= 0.995 THEN 'all' ELSE format('{:.0f}% of it', 100 * part_share) END,
                                        first_step, last_step) ELSE '' END
       || CASE kind WHEN 'slow_host'
                    THEN format('; it needs {} longer than the others ({}){}',
                                CASE WHEN NOT is_bound THEN 'that much'
                                     ELSE format(CASE WHEN beyond_ms < 100 THEN '{:.3g} ms' ELSE '{:.0f} ms' END, beyond_ms) END,
                                coalesce(activity || ': other traffic of the host, rather than computing', 'computing, not the network'),
                                CASE WHEN is_bound THEN ', in part while another host is late, too' ELSE '' END)
                    WHEN 'background' THEN format('; other traffic of {:.1f} MB shares a link while it sends{}', other_bytes / 1e6, coalesce(met_by, ''))
                    WHEN 'congestion' THEN CASE WHEN is_met THEN format('; several other hosts send {:.1f} MB to its receiver at the same time', other_bytes / 1e6)
                                                ELSE format('; {:.3g} congestion marks (ECN) or notifications come with 100 of its packets', 100 * marked_share) END
                    WHEN 'receiver' THEN format('; the window that its receiver offers is {:.3g} KiB at most, and closes', window_bytes / 1024) ELSE '' END
       || CASE WHEN late_bytes >= least_late * payload_bytes
               THEN format('; {} MB come late, behind bytes that follow them, as where packets are lost before they are captured, or overtake each other',
                           format(CASE WHEN late_bytes < 1e8 THEN '{:.3g}' ELSE '{:.0f}' END, late_bytes / 1e6)) ELSE '' END
       || CASE WHEN p_value > likely_p THEN format('; not established: chance alone does as much with probability {:.2f}', p_value)
               WHEN NOT is_established THEN '; not established: clocks of the hosts differ by half of this and more' ELSE '' END || '.' AS sentence
FROM clocked
WHERE CASE kind WHEN 'slow_host' THEN true WHEN 'delay' THEN true WHEN 'loss' THEN retransmitted_bytes >= least_again * payload_bytes
                ELSE gbit_per_s <= usual_gbit_per_s * CASE WHEN is_shared THEN slow_shared_part ELSE slow_part END END
ORDER BY run_id, job, rank
