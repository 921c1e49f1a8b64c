-- question: Which collectives does each host finish before it enters each collective, and how long does it compute between?
-- subject: collectives
-- row: a run, a job, a step, a collective, a host of it and a collective that it waits for; needs_step is null where it waits for none
-- inputs: collective_transfers, collective_entries
-- param: first_step BIGINT = NULL; only this step of a job and later ones; NULL: from the first
-- param: last_step BIGINT = NULL; only this step of a job and earlier ones; NULL: to the last
-- column: run_id from collective_transfers
-- column: job from collective_transfers
-- column: step from collective_transfers
-- column: position from collective_transfers
-- column: host_ip from collective_entries
-- column: needs_step; step of a collective that the host has finished before
-- column: needs_position; its position there
-- column: ready_ns ns since the epoch, UTC; when these had ended at the host and it had entered those before; of its first one when the first host of the job entered
-- column: start_ns ns since the epoch, UTC; when it entered, at the earliest ready_ns; where it only gets data, ready_ns
-- column: end_ns ns since the epoch, UTC; its last data of the collective, at the earliest start_ns
-- The order is that of the usual step: one collective follows another at a host if it begins there after the other has ended, by
-- the medians of both times over the steps, since the start of the step. So it is the same in each step, and what overlaps
-- (channels, buckets) does not wait. The first of a step follow the last of the step before at that host. A host waits for those
-- that end last: what these waited for is not repeated. start_ns - ready_ns is computation and whatever else the host does without data.
WITH of_hosts AS (
    SELECT run_id, job, step, "position", host_ip, min(first_ns) FILTER (src_ip = host_ip) AS sent_ns,
           min(first_ns) AS first_ns, max(last_ns) AS last_ns
    FROM (SELECT *, unnest([src_ip, dst_ip]) AS host_ip FROM collective_transfers)
    GROUP BY ALL
), entered AS MATERIALIZED (  -- a host's first message of all may set up a connection: its first data counts
    SELECT run_id, job, step, "position", host_ip, last_ns,
           CASE WHEN row_number() OVER (PARTITION BY run_id, job, host_ip ORDER BY step, "position") = 1
                THEN coalesce(sent_ns, first_ns) WHEN free_ns IS NOT NULL THEN entry_ns END AS entry_ns,
           first_ns - min(first_ns) OVER (PARTITION BY run_id, job, step) AS since_ns,
           last_ns - min(first_ns) OVER (PARTITION BY run_id, job, step) AS until_ns
    FROM of_hosts
    LEFT JOIN collective_entries USING (run_id, job, step, "position", host_ip)
), usual AS (
    SELECT run_id, job, "position", host_ip, median(since_ns) AS begins_ns, median(until_ns) AS ends_ns
    FROM entered
    GROUP BY run_id, job, "position", host_ip
), placed AS MATERIALIZED (
    SELECT run_id, job, step, "position", host_ip, entry_ns, last_ns, begins_ns, ends_ns,
           dense_rank() OVER (PARTITION BY run_id, job, host_ip ORDER BY step) AS turn
    FROM entered
    JOIN usual USING (run_id, job, "position", host_ip)
    WHERE step >= coalesce($first_step, step) AND step <= coalesce($last_step, step)
), before AS (  -- those of the same step, apart from those of the step before: all pairs of these would be too many
    SELECT b.run_id, b.job, b.step, b."position", host_ip, a.step AS needs_step, a."position" AS needs_position,
           a.last_ns AS needs_last_ns, a.ends_ns AS needs_ends_ns,
           max(a.begins_ns) OVER (PARTITION BY b.run_id, b.job, b.step, b."position", host_ip) AS latest_begin
    FROM placed AS b
    JOIN placed AS a USING (run_id, job, host_ip, turn)
    WHERE a.ends_ns < b.begins_ns AND a."position" < b."position"
), last_of_turn AS (
    SELECT *
    FROM placed
    QUALIFY ends_ns >= max(begins_ns) OVER (PARTITION BY run_id, job, host_ip, turn)
), needing AS (
    SELECT run_id, job, step, "position", host_ip, needs_step, needs_position, needs_last_ns
    FROM before
    WHERE needs_ends_ns >= latest_begin
    UNION ALL
    SELECT b.run_id, b.job, b.step, b."position", b.host_ip, a.step, a."position", a.last_ns
    FROM (FROM placed ANTI JOIN before USING (run_id, job, step, "position", host_ip)) AS b
    JOIN last_of_turn AS a ON a.run_id = b.run_id AND a.job = b.job AND a.host_ip = b.host_ip AND a.turn = b.turn - 1
), needed AS (
    SELECT *, max(needs_last_ns) OVER (PARTITION BY run_id, job, step, "position", host_ip) AS freed_ns
    FROM needing
), ready AS (
    SELECT p.*, needs_step, needs_position,
           greatest(freed_ns, min(entry_ns) OVER (PARTITION BY p.run_id, p.job),
                    max(entry_ns) OVER (PARTITION BY p.run_id, p.job, p.host_ip ORDER BY p.step, p."position"
                                        GROUPS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)) AS ready_ns
    FROM placed AS p
    LEFT JOIN needed USING (run_id, job, step, "position", host_ip)
)
SELECT run_id, job, step, "position", host_ip, needs_step, needs_position, ready_ns,
       greatest(coalesce(entry_ns, ready_ns), ready_ns) AS start_ns, greatest(last_ns, start_ns) AS end_ns
FROM ready
ORDER BY run_id, job, step, "position", host_ip, needs_step, needs_position
