-- question: Does the costliest finding of each run name the host and the kind of the fault that was made on purpose?
-- subject: delays
-- row: a run whose fault is declared, or declared to be none
-- inputs: runs, hosts, job_periods, verdicts, collective_entries, edge_times
-- answer: fault_kind, found_kind, is_place_right
-- column: run_id from runs
-- column: fault_kind from runs
-- column: fault_host from runs
-- column: fault_strength from runs
-- column: jobs; jobs that the traffic shows: without one nothing can be found
-- column: found_kind; kind of the costliest finding; null where nothing stands out
-- column: found_host; label of its host, or of its link's sender
-- column: found_peer; label of its link's receiver
-- column: found_share ratio; its share_of_step
-- column: confidence from verdicts
-- column: is_place_right; whether the host at fault is the one found, or an end of the link found; null for a run without a fault
-- column: is_kind_right; whether the kind is the fault's, too; null for a run without a fault
-- column: is_false_alarm; whether something is found in a run without a fault; null for one with a fault
-- column: baseline_host; label of the host with the longest mean own_ms, of a slow_host; else of the sender of the link with the lowest mean rate
-- column: baseline_peer; label of that link's receiver
-- column: is_baseline_right; as is_place_right. It always names somebody, and is told whether to look at hosts or at links
-- The unit is a run; runs of a setting with the same fault are not independent.
WITH named AS (
    SELECT run_id, host_ip, coalesce(label, host_ip) AS label
    FROM hosts
), first_found AS (
    SELECT run_id, v.kind, a.label AS host, b.label AS peer, share_of_step, confidence
    FROM verdicts AS v
    LEFT JOIN named AS a USING (run_id, host_ip)
    LEFT JOIN named AS b ON v.run_id = b.run_id AND v.peer_ip = b.host_ip
    QUALIFY row_number() OVER (PARTITION BY run_id ORDER BY cost_ms DESC, job, rank) = 1
), slowest_hosts AS (
    SELECT run_id, arg_max(label, (own_ms, label)) AS host
    FROM (SELECT run_id, host_ip, avg(own_ms) AS own_ms FROM collective_entries WHERE step > 0 GROUP BY run_id, host_ip)
    JOIN named USING (run_id, host_ip)
    GROUP BY run_id
), slowest_links AS (
    SELECT e.run_id, arg_min(a.label, (rate, a.label, b.label)) AS host, arg_min(b.label, (rate, a.label, b.label)) AS peer
    FROM (SELECT run_id, src_ip, dst_ip, avg(gbit_per_s) AS rate FROM edge_times WHERE step > 0 GROUP BY run_id, src_ip, dst_ip) AS e
    JOIN named AS a ON e.run_id = a.run_id AND e.src_ip = a.host_ip
    JOIN named AS b ON e.run_id = b.run_id AND e.dst_ip = b.host_ip
    WHERE rate > 0
    GROUP BY e.run_id
), counted AS (
    SELECT run_id, count(*) AS jobs
    FROM job_periods
    GROUP BY run_id
), compared AS (
    SELECT r.run_id, fault_kind, fault_host, fault_strength, coalesce(c.jobs, 0) AS jobs, f.kind AS found_kind, f.host AS found_host,
           f.peer AS found_peer, share_of_step AS found_share, confidence, fault_kind <> 'none' AS is_fault,
           coalesce(fault_host IN (f.host, f.peer), false) AND coalesce(fault_peer IN (f.host, f.peer), true) AS is_place,
           CASE WHEN fault_kind = 'slow_host' THEN h.host ELSE l.host END AS baseline_host,
           CASE WHEN fault_kind <> 'slow_host' THEN l.peer END AS baseline_peer
    FROM runs AS r
    LEFT JOIN counted AS c USING (run_id)
    LEFT JOIN first_found AS f USING (run_id)
    LEFT JOIN slowest_hosts AS h USING (run_id)
    LEFT JOIN slowest_links AS l USING (run_id)
    WHERE fault_kind IS NOT NULL
)
SELECT run_id, fault_kind, fault_host, fault_strength, jobs, found_kind, found_host, found_peer, found_share, confidence,
       CASE WHEN is_fault THEN is_place END AS is_place_right,
       CASE WHEN is_fault THEN is_place AND coalesce(found_kind = fault_kind, false) END AS is_kind_right,
       CASE WHEN NOT is_fault THEN found_kind IS NOT NULL END AS is_false_alarm, baseline_host, baseline_peer,
       CASE WHEN is_fault THEN coalesce(fault_host IN (baseline_host, baseline_peer), false) END AS is_baseline_right
FROM compared
ORDER BY run_id
