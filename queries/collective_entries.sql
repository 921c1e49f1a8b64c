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
-- column: entry_ns ns since the epoch, UTC; its first message behind that, of any size, on any connection of the job, or the one behind its longest pause where small messages come before that; in the first collective the last one before its data
-- column: own_ms ms; from free_ns to entry_ns: what the host itself did between the two collectives
-- column: is_waiting; whether it had got data of this collective before it sent anything for it, as the inner hosts of a tree; or waited for its receiver
-- column: partners hosts; with which it exchanges data in this collective, in all steps: hosts with as many have the same part in it
-- A host waits for its receiver (RDMA: until that has posted a buffer) where it has got data of this collective, but enters within
-- 0.1 ms of the host to which its first message goes.
-- Programs often exchange a few bytes behind a step, as for a mean loss. Where a host writes such messages before its longest pause in half
-- of the steps, it enters behind that pause. What it writes to a host within 2 ms behind a message from that host, and data within
-- 2 ms behind a message from any host, is an answer and ends no pause.
-- gloo's receivers first say that they are ready. Where a program sends nothing before it has got data, entry_ns is no more than
-- the time of its answer. Before a job's first collective hosts open connections: these messages are no entry.
WITH thresholds AS (
    SELECT 100_000 AS at_once_ns,
           2_000_000 AS answer_ns,  -- on busy hosts most answers take less
           0.5 AS least_share       -- of the steps
), of_hosts AS MATERIALIZED (
    SELECT run_id, job, step, "position", host_ip, min(first_ns) FILTER (src_ip = host_ip) AS sent_ns,
           min(last_ns) FILTER (dst_ip = host_ip) AS got_ns, min(first_ns) FILTER (dst_ip = host_ip) AS reached_ns, max(last_ns) AS last_ns
    FROM (SELECT *, unnest([src_ip, dst_ip]) AS host_ip FROM collective_transfers)
    GROUP BY ALL
), freed AS (
    SELECT h.*, b.last_ns AS free_ns
    FROM of_hosts AS h
    ASOF LEFT JOIN of_hosts AS b
      ON h.run_id = b.run_id AND h.job = b.job AND h.host_ip = b.host_ip AND h.sent_ns > b.last_ns
), degrees AS (
    SELECT run_id, job, "position", host_ip, count(DISTINCT peer_ip) AS partners
    FROM (SELECT DISTINCT run_id, job, "position", unnest([src_ip, dst_ip]) AS host_ip, unnest([dst_ip, src_ip]) AS peer_ip
          FROM collective_transfers)
    GROUP BY run_id, job, "position", host_ip
), own_flows AS (
    SELECT DISTINCT run_id, job, unnest([flow_id, reverse_flow_id]) AS flow_id
    FROM job_flows
    JOIN flows USING (run_id, flow_id)
), written AS (
    SELECT run_id, job, src_ip AS host_ip, dst_ip AS peer_ip, first_ns AS entry_ns, max(first_ns + duration_ns) AS last_ns
    FROM messages
    JOIN own_flows USING (run_id, flow_id)
    JOIN flows USING (run_id, flow_id)
    GROUP BY ALL
), read AS (
    SELECT run_id, job, peer_ip AS host_ip, entry_ns, max(last_ns) AS last_ns
    FROM written
    GROUP BY ALL
), spans AS (  -- from a host's last data to its next
    SELECT run_id, job, host_ip, free_ns, min(sent_ns) AS sent_ns, arg_min("position", (sent_ns, "position")) AS "position"
    FROM freed
    WHERE free_ns IS NOT NULL
    GROUP BY ALL
), own AS (  -- what hosts write within these, and for how long they wrote nothing before
    SELECT w.*, "position", free_ns, entry_ns = sent_ns AS is_data, entry_ns - greatest(free_ns, lag(w.last_ns) OVER (PARTITION BY w.run_id, w.job, w.host_ip ORDER BY entry_ns, peer_ip)) AS pause_ns,
           row_number() OVER (PARTITION BY w.run_id, w.job, w.host_ip, free_ns ORDER BY entry_ns, peer_ip) = 1 AS is_first
    FROM written AS w
    ASOF JOIN spans AS s
      ON s.run_id = w.run_id AND s.job = w.job AND s.host_ip = w.host_ip AND w.entry_ns > s.free_ns
    WHERE entry_ns <= sent_ns
), unasked AS (  -- behind no message of their receiver; data, behind none of any host
    SELECT o.* EXCLUDE (last_ns)
    FROM own AS o
    ASOF LEFT JOIN written AS a
      ON a.run_id = o.run_id AND a.job = o.job AND a.host_ip = o.peer_ip AND a.peer_ip = o.host_ip AND o.entry_ns > a.entry_ns
    ASOF LEFT JOIN read AS g
      ON g.run_id = o.run_id AND g.job = o.job AND g.host_ip = o.host_ip AND o.entry_ns > g.entry_ns
    CROSS JOIN thresholds
    WHERE is_first OR NOT coalesce(o.entry_ns - a.last_ns BETWEEN 0 AND answer_ns, false)
                      AND NOT (is_data AND coalesce(o.entry_ns - g.last_ns BETWEEN 0 AND answer_ns, false))
), begun AS (
    SELECT run_id, job, "position", host_ip, free_ns, arg_max(struct_pack(peer_ip, entry_ns, is_first), (pause_ns, -entry_ns, peer_ip)) AS longest,
           any_value(struct_pack(peer_ip, entry_ns)) FILTER (is_first) AS earliest
    FROM unasked
    GROUP BY ALL
), chosen AS (
    SELECT run_id, job, host_ip, free_ns,
           avg((NOT longest.is_first)::INTEGER) OVER (PARTITION BY run_id, job, "position", host_ip) >= least_share AS is_longest,
           if(is_longest, longest.peer_ip, earliest.peer_ip) AS peer_ip, if(is_longest, longest.entry_ns, earliest.entry_ns) AS entry_ns
    FROM begun
    CROSS JOIN thresholds
), entered AS (
    SELECT f.*, peer_ip, entry_ns
    FROM freed AS f
    JOIN chosen USING (run_id, job, host_ip, free_ns)
    UNION ALL
    SELECT f.*, peer_ip, coalesce(entry_ns, sent_ns)
    FROM (FROM freed WHERE free_ns IS NULL AND sent_ns IS NOT NULL) AS f
    ASOF LEFT JOIN written AS w
      ON f.run_id = w.run_id AND f.job = w.job AND f.host_ip = w.host_ip AND f.sent_ns > w.entry_ns
)
SELECT e.run_id, e.job, e.step, e."position", e.host_ip, e.free_ns, e.entry_ns, (e.entry_ns - e.free_ns) / 1e6 AS own_ms,
       coalesce(e.got_ns < e.entry_ns OR e.reached_ns < e.entry_ns - at_once_ns AND r.entry_ns >= e.entry_ns - at_once_ns, false) AS is_waiting,
       partners
FROM (FROM entered, thresholds WHERE entry_ns <= last_ns) AS e
JOIN degrees AS d ON e.run_id = d.run_id AND e.job = d.job AND e."position" = d."position" AND e.host_ip = d.host_ip
ASOF LEFT JOIN entered AS r  -- of its receiver
  ON e.run_id = r.run_id AND e.job = r.job AND e.peer_ip = r.host_ip AND e.entry_ns + at_once_ns >= r.entry_ns
ORDER BY e.run_id, e.job, e.step, e."position", e.host_ip
