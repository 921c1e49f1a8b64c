-- question: When did each collective of each step begin and end, and which host entered it last?
-- row: a run, a job, a step and a collective of it
-- inputs: flows, messages, job_flows, collectives, collective_transfers
-- column: run_id from collective_transfers
-- column: job from collective_transfers
-- column: step
-- column: position
-- column: communicator
-- column: start_ns ns since the epoch, UTC; first packet with data
-- column: end_ns ns since the epoch, UTC; last packet with data
-- column: duration_ms ms; from start to end; null below 10 ms, where it may be far shorter than the hosts' own time
-- column: payload_bytes bytes; payload of its flows
-- column: first_host; address of the host that entered first
-- column: last_host; address of the host that entered last; null where none is known to have sent anything for it
-- column: last_entry_ns ns since the epoch, UTC; when that was
-- column: slowest_from; address that sent the data that ended last
-- column: slowest_to; address that got it
-- Times are of the wire: a host's own time of a collective also has what it waits and copies, before and after.
-- A host enters with the first message that it sends, of any size and on any connection of the job, after its last data of the collectives
-- before. gloo's receivers first say that they are ready; where a program sends nothing before it has got data, a host that
-- waits is taken for late.
WITH of_hosts AS MATERIALIZED (
    SELECT run_id, job, step, "position", host_ip, min(first_ns) FILTER (src_ip = host_ip) AS sent_ns, max(last_ns) AS last_ns
    FROM (SELECT *, unnest([src_ip, dst_ip]) AS host_ip FROM collective_transfers)
    GROUP BY ALL
), freed AS (
    SELECT h.*, coalesce(b.last_ns, 0) AS free_ns
    FROM of_hosts AS h
    ASOF LEFT JOIN of_hosts AS b
      ON h.run_id = b.run_id AND h.job = b.job AND h.host_ip = b.host_ip AND h.sent_ns > b.last_ns
), own_flows AS (
    SELECT run_id, job, unnest([flow_id, reverse_flow_id]) AS flow_id
    FROM job_flows
    JOIN flows USING (run_id, flow_id)
), written AS (
    SELECT run_id, job, src_ip AS host_ip, first_ns AS entry_ns
    FROM messages
    JOIN (SELECT DISTINCT * FROM own_flows) USING (run_id, flow_id)
    JOIN flows USING (run_id, flow_id)
), entries AS (
    SELECT f.run_id, f.job, f.step, f."position", f.host_ip, entry_ns
    FROM freed AS f
    ASOF JOIN written AS w
      ON f.run_id = w.run_id AND f.job = w.job AND f.host_ip = w.host_ip AND f.free_ns < w.entry_ns
    WHERE entry_ns <= f.last_ns
), order_of_hosts AS (
    SELECT run_id, job, step, "position", arg_min(host_ip, (entry_ns, host_ip)) AS first_host,
           arg_max(host_ip, (entry_ns, host_ip)) AS last_host, max(entry_ns) AS last_entry_ns
    FROM entries
    GROUP BY run_id, job, step, "position"
), times AS (
    SELECT run_id, job, step, "position", min(first_ns) AS start_ns, max(last_ns) AS end_ns, sum(bytes)::BIGINT AS payload_bytes,
           arg_max(src_ip, (last_ns, flow_id)) AS slowest_from, arg_max(dst_ip, (last_ns, flow_id)) AS slowest_to
    FROM collective_transfers
    GROUP BY run_id, job, step, "position"
)
SELECT run_id, job, step, "position", communicator, start_ns, end_ns,
       CASE WHEN end_ns - start_ns >= 10e6 THEN (end_ns - start_ns) / 1e6 END AS duration_ms,
       payload_bytes, first_host, last_host, last_entry_ns, slowest_from, slowest_to
FROM times
JOIN collectives USING (run_id, job, "position")
LEFT JOIN order_of_hosts USING (run_id, job, step, "position")
ORDER BY run_id, job, step, "position"
