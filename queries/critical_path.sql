-- question: Which hosts and collectives does each step wait for, one after the other?
-- subject: delays
-- row: a run, a job, a step and a part of its critical path: a collective, and before it the host that entered it last
-- inputs: step_collectives, collective_dependencies
-- column: run_id from collective_dependencies
-- column: job from collective_dependencies
-- column: step from collective_dependencies
-- column: place; 1 is the first of the step
-- column: position from collective_dependencies
-- column: communicator from step_collectives
-- column: host_ip; address of the host that entered the collective last, of those before its end
-- column: until_host; address of the host that waits for the collective: the next one of the path, or the step's last
-- column: own_ms ms; time of host_ip from what it waited for to its entry: computing, and whatever else it does without data
-- column: collective_ms ms; from that entry to the last data of until_host; null where host_ip goes on without waiting for its end, as with buckets
-- column: start_ns ns since the epoch, UTC; when own_ms begins
-- column: end_ns ns since the epoch, UTC; when collective_ms ends, or own_ms where that is null
-- The path goes back from the host that gets or sends the step's last data. A collective ends at a host with its last data there, and
-- waits for the last host that entered before that. This host waited for the end of another collective, or for its own entry into one that
-- goes on at the same time: the later of both, by collective_dependencies. The parts follow each other without a gap. In a tree or star a
-- host that ends early waits for fewer hosts than are taken here.
WITH RECURSIVE at_hosts AS MATERIALIZED (
    SELECT run_id, job, step, "position", host_ip, ready_ns, start_ns, end_ns, needs_step, needs_position
    FROM collective_dependencies()
), entries AS MATERIALIZED (
    SELECT DISTINCT run_id, job, step, "position", host_ip, ready_ns, start_ns, end_ns
    FROM at_hosts
), waited AS (  -- what ended at ready_ns
    SELECT n.run_id, n.job, n.step, n."position", n.host_ip, max(needs_position) AS next_position
    FROM at_hosts AS n
    JOIN entries AS b
      ON b.run_id = n.run_id AND b.job = n.job AND b.step = n.step AND b.host_ip = n.host_ip AND b."position" = needs_position
     AND b.end_ns = n.ready_ns
    WHERE needs_step = n.step
    GROUP BY ALL
), before AS (  -- else what began then, and may have ended in the same instant
    SELECT n.run_id, n.job, n.step, n."position", n.host_ip, w.next_position IS NOT NULL OR z."position" IS NOT NULL AS next_is_waited,
           coalesce(greatest(w.next_position, z."position"), b."position") AS next_position
    FROM entries AS n
    LEFT JOIN waited AS w USING (run_id, job, step, "position", host_ip)
    ASOF LEFT JOIN (FROM entries WHERE start_ns = end_ns) AS z
      ON z.run_id = n.run_id AND z.job = n.job AND z.step = n.step AND z.host_ip = n.host_ip AND z.start_ns = n.ready_ns
     AND z."position" < n."position"
    ASOF LEFT JOIN entries AS b
      ON b.run_id = n.run_id AND b.job = n.job AND b.step = n.step AND b.host_ip = n.host_ip AND b.start_ns = n.ready_ns
     AND b."position" < n."position"
), reached AS (
    SELECT u.run_id, u.job, u.step, u."position", u.host_ip AS until_host, true AS is_waited, u.end_ns,
           l.host_ip, l.ready_ns, l.start_ns AS entry_ns
    FROM entries AS u
    JOIN entries AS l USING (run_id, job, step, "position")
    WHERE l.start_ns <= u.end_ns
    QUALIFY row_number() OVER (PARTITION BY u.run_id, u.job, u.step, u."position", u.host_ip
                               ORDER BY l.start_ns DESC, l.host_ip) = 1
    UNION ALL
    SELECT run_id, job, step, "position", host_ip, false, start_ns, host_ip, ready_ns, start_ns
    FROM entries
), parts AS MATERIALIZED (
    FROM reached
    LEFT JOIN before USING (run_id, job, step, "position", host_ip)
), chain AS (
    SELECT *, 1 AS from_end
    FROM parts
    WHERE is_waited
    QUALIFY row_number() OVER (PARTITION BY run_id, job, step ORDER BY end_ns DESC, "position" DESC, until_host) = 1
    UNION ALL
    SELECT p.*, from_end + 1
    FROM chain AS c
    JOIN parts AS p
      ON c.run_id = p.run_id AND c.job = p.job AND c.step = p.step AND c.next_position = p."position"
     AND c.next_is_waited = p.is_waited AND c.host_ip = p.until_host
)
SELECT run_id, job, step, row_number() OVER (PARTITION BY run_id, job, step ORDER BY from_end DESC) AS place, "position", communicator,
       host_ip, until_host, (entry_ns - ready_ns) / 1e6 AS own_ms, CASE WHEN is_waited THEN (end_ns - entry_ns) / 1e6 END AS collective_ms,
       ready_ns AS start_ns, end_ns
FROM chain
JOIN step_collectives USING (run_id, job, "position")
ORDER BY run_id, job, step, place
