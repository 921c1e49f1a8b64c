-- question: When was each host free for a collective, and when did it enter it?
-- subject: delays
-- row: a run, a job, a step, a collective and a host that sent something for it
-- inputs: flows, messages, job_flows, collective_transfers
-- column: run_id from collective_transfers
-- column: job from collective_transfers
-- column: step
-- column: position
-- column: host_ip; address of the host
-- column: free_ns ns since the epoch, UTC; its last data of the collectives before, sent or received; null in the first
-- column: entry_ns ns since the epoch, UTC; its first message behind that, of any size, on any connection of the job; in the first collective the last one before its data
-- column: own_ms ms; from free_ns to entry_ns: what the host itself did between the two collectives
-- column: is_waiting; whether it had got data of this collective before it sent anything for it, as the inner hosts of a tree
-- gloo's receivers first say that they are ready. Where a program sends nothing before it has got data, entry_ns is no more than
-- the time of its answer. Before a job's first collective hosts open connections: these messages are no entry.
WITH of_hosts AS MATERIALIZED (
    SELECT run_id, job, step, "position", host_ip, min(first_ns) FILTER (src_ip = host_ip) AS sent_ns,
           min(last_ns) FILTER (dst_ip = host_ip) AS got_ns, max(last_ns) AS last_ns
    FROM (SELECT *, unnest([src_ip, dst_ip]) AS host_ip FROM collective_transfers)
    GROUP BY ALL
), freed AS (
    SELECT h.*, b.last_ns AS free_ns
    FROM of_hosts AS h
    ASOF LEFT JOIN of_hosts AS b
      ON h.run_id = b.run_id AND h.job = b.job AND h.host_ip = b.host_ip AND h.sent_ns > b.last_ns
), own_flows AS (
    SELECT DISTINCT run_id, job, unnest([flow_id, reverse_flow_id]) AS flow_id
    FROM job_flows
    JOIN flows USING (run_id, flow_id)
), written AS (
    SELECT run_id, job, src_ip AS host_ip, first_ns AS entry_ns
    FROM messages
    JOIN own_flows USING (run_id, flow_id)
    JOIN flows USING (run_id, flow_id)
), entered AS (
    SELECT f.*, entry_ns
    FROM freed AS f
    ASOF JOIN written AS w
      ON f.run_id = w.run_id AND f.job = w.job AND f.host_ip = w.host_ip AND f.free_ns < w.entry_ns
    UNION ALL
    SELECT f.*, coalesce(entry_ns, sent_ns)
    FROM (FROM freed WHERE free_ns IS NULL AND sent_ns IS NOT NULL) AS f
    ASOF LEFT JOIN written AS w
      ON f.run_id = w.run_id AND f.job = w.job AND f.host_ip = w.host_ip AND f.sent_ns > w.entry_ns
)
SELECT run_id, job, step, "position", host_ip, free_ns, entry_ns, (entry_ns - free_ns) / 1e6 AS own_ms,
       coalesce(got_ns < entry_ns, false) AS is_waiting
FROM entered
WHERE entry_ns <= last_ns
ORDER BY run_id, job, step, "position", host_ip
