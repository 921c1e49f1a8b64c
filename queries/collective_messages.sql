-- question: Which messages make up each collective of each step, and which does each wait for?
-- subject: collectives
-- row: a run, a job, a message of one of its collectives and a message that it waits for; one row with needs_transfer null where it waits for none
-- inputs: flows, messages, collective_transfers
-- param: first_step BIGINT = NULL; only this step of a job and later ones; NULL: from the first
-- param: last_step BIGINT = NULL; only this step of a job and earlier ones; NULL: to the last
-- column: run_id from collective_transfers
-- column: job from collective_transfers
-- column: transfer; number of the message in its job, from 0, in the order of their starts
-- column: step from collective_transfers
-- column: position from collective_transfers
-- column: flow_id from collective_transfers
-- column: src_ip
-- column: dst_ip
-- column: first_ns from messages
-- column: last_ns ns since the epoch, UTC; the ns after its last packet
-- column: bytes from messages
-- column: needs_transfer; message to its sender that must have ended; null where it waits for none
-- column: delay_ns ns; from the end of the last message or start it waits for to its own start
-- As transfer_dependencies, with messages in place of bursts: the rounds of a collective are told apart by the packets' own times.
-- A message is of the collective in which it begins; of those at once (buckets, channels on the same flow) of the first.
WITH spans AS (
    SELECT run_id, flow_id, first_ns, min((step, job, "position")) AS place, max(last_ns) AS last_ns
    FROM collective_transfers
    GROUP BY run_id, flow_id, first_ns
), placed AS (
    SELECT m.run_id, s.place[2] AS job, m.message, s.place[1] AS step, s.place[3] AS "position", m.flow_id, m.first_ns,
           m.first_ns + duration_ns + 1 AS last_ns, m.bytes
    FROM messages AS m
    ASOF JOIN spans AS s ON m.run_id = s.run_id AND m.flow_id = s.flow_id AND m.first_ns >= s.first_ns
    WHERE m.first_ns <= s.last_ns AND m.bytes > 0
), numbered AS MATERIALIZED (
    SELECT p.*, src_ip, dst_ip, row_number() OVER (PARTITION BY run_id, job ORDER BY first_ns, flow_id, message) - 1 AS transfer
    FROM placed AS p
    JOIN flows USING (run_id, flow_id)
    WHERE step >= coalesce($first_step, step) AND step <= coalesce($last_step, step)
), begun AS (
    SELECT run_id, job, src_ip, first_ns, min(transfer) AS transfer
    FROM numbered
    GROUP BY ALL
), received AS (  -- what a host received, with the first message that it began then or later
    SELECT t.run_id, t.job, b.transfer, t.src_ip, t.transfer AS needs_transfer, t.last_ns
    FROM numbered AS t
    ASOF JOIN begun AS b ON t.run_id = b.run_id AND t.job = b.job AND t.dst_ip = b.src_ip AND t.last_ns <= b.first_ns
), needed AS (
    FROM received
    QUALIFY row_number() OVER (PARTITION BY run_id, job, transfer, src_ip ORDER BY last_ns DESC, needs_transfer DESC) = 1
), ready AS (
    SELECT run_id, job, transfer, max(last_ns) AS ready_ns
    FROM needed
    GROUP BY ALL
), timed AS (
    SELECT n.*, first_ns - greatest(lag(first_ns) OVER (PARTITION BY n.run_id, n.job, src_ip ORDER BY n.transfer), ready_ns,
                                    min(first_ns) OVER (PARTITION BY n.run_id, n.job)) AS delay_ns
    FROM numbered AS n
    LEFT JOIN ready AS r ON n.run_id = r.run_id AND n.job = r.job AND n.transfer = r.transfer
)
SELECT t.run_id, t.job, t.transfer, step, "position", flow_id, t.src_ip, dst_ip, first_ns, t.last_ns, bytes, needs_transfer, delay_ns
FROM timed AS t
LEFT JOIN needed AS n ON t.run_id = n.run_id AND t.job = n.job AND t.transfer = n.transfer
ORDER BY t.run_id, t.job, t.transfer, needs_transfer
