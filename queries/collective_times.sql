-- question: When did each collective of each step begin and end, and which host entered it last?
-- subject: collectives
-- row: a run, a job, a step and a collective of it
-- inputs: step_collectives, collective_entries, collective_transfers
-- answer: step, position, duration_ms
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
-- Where a program sends nothing before it has got data, a host that waits is taken for late (collective_entries).
WITH order_of_hosts AS (
    SELECT run_id, job, step, "position", arg_min(host_ip, (entry_ns, host_ip)) AS first_host,
           arg_max(host_ip, (entry_ns, host_ip)) AS last_host, max(entry_ns) AS last_entry_ns
    FROM collective_entries
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
JOIN step_collectives USING (run_id, job, "position")
LEFT JOIN order_of_hosts USING (run_id, job, step, "position")
ORDER BY run_id, job, step, "position"
