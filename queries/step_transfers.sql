-- question: Into which transfers, cut at the ends of training steps, does the traffic of a run divide?
-- subject: steps
-- row: a run and a transfer: what a flow sends in one burst and one step, or one message
-- inputs: flow_bursts, messages, flows, step_flows, steps, hosts, worker_hosts
-- optional: messages
-- param: gap_ms DOUBLE > 0 = 5; a silence of this length or longer ends a transfer, ms; at least the base window of the dataset
-- param: cut VARCHAR = bursts; what a transfer is: bursts, or messages: what the flow's sender wrote at once, with the times of its packets, of payload only
-- param: counted VARCHAR = payload; what transfer_bytes counts: payload, or wire: whole frames, acknowledgements too
-- param: traffic VARCHAR = all; all of the run, or steps: only what was sent in its training steps
-- param: first_step BIGINT = NULL; only what was sent in this step and later ones; NULL: from the first
-- param: last_step BIGINT = NULL; only what was sent in this step and earlier ones; NULL: to the last
-- column: run_id
-- column: transfer; number of the transfer in its run, from 0, in the order of their starts
-- column: src_ip
-- column: dst_ip
-- column: protocol
-- column: src_port
-- column: dst_port
-- column: flow_id from flow_bursts
-- column: burst; number of the burst in its flow, as in flow_bursts with the same parameters; of a message that of the table messages
-- column: step; number of the step; null before the first, after the last, or without a log
-- column: start_ns ns since the epoch, UTC; start of the burst, or of the step where that cuts it; of a message its first packet
-- column: end_ns ns since the epoch, UTC; end of the burst, or of the step where that cuts it; of a message the ns after its last packet
-- column: transfer_bytes bytes; payload, or with counted wire whole frames
-- A burst (flow_bursts) that lasts over the end of a step is two transfers. step_flows gives the bytes in each step,
-- where each packet is in one step: the bytes of a flow, in the order in which they were sent, are cut at the ends of
-- bursts and at the ends of steps. So the transfers of a flow add up to its bytes, and those of a step to its bytes in
-- that step. A transfer begins and ends at most one base window before its first and after its last packet.
-- Only what one host of the run sends to another is included: nothing to multicast addresses, nothing of a host to
-- itself.
-- A message is in the step in which it begins, of the worker at its sender, else at its receiver. Messages have what was
-- sent again once.
WITH bursts AS (
    SELECT run_id, flow_id, src_ip, dst_ip, protocol, src_port, dst_port, burst, start_ns, end_ns,
           CASE WHEN $counted = 'wire' THEN wire_bytes ELSE payload_bytes END AS size,
           sum(size) OVER (PARTITION BY run_id, flow_id ORDER BY burst ROWS UNBOUNDED PRECEDING)::BIGINT AS sent
    FROM flow_bursts(gap_ms := $gap_ms, counted := $counted)
    WHERE $cut <> 'messages' AND src_ip <> dst_ip AND (run_id, src_ip) IN (SELECT (run_id, host_ip) FROM hosts)
      AND (run_id, dst_ip) IN (SELECT (run_id, host_ip) FROM hosts)
), spans AS (  -- a pause between two steps counts to the later one, as in step_flows
    SELECT run_id, worker, step, end_ns,
           coalesce(lag(end_ns) OVER (PARTITION BY run_id, worker ORDER BY end_ns, step), start_ns) AS begin_ns
    FROM steps
), trainings AS (
    SELECT run_id, worker, min(start_ns) AS first_ns, max(end_ns) AS last_ns
    FROM steps
    GROUP BY ALL
), parts AS (  -- what a flow sends before, in and after the steps, with their time
    SELECT run_id, flow_id, s.step, CASE position WHEN 'before' THEN 0 WHEN 'during' THEN 1 ELSE 2 END AS place,
           CASE place WHEN 1 THEN begin_ns WHEN 2 THEN last_ns END AS begin_ns,
           CASE place WHEN 1 THEN end_ns WHEN 0 THEN first_ns END AS end_ns,
           CASE WHEN $counted = 'wire' THEN wire_bytes ELSE payload_bytes END AS size
    FROM step_flows AS s
    LEFT JOIN spans USING (run_id, worker, step)
    LEFT JOIN trainings USING (run_id, worker)
), passed AS (
    SELECT *, sum(size) OVER (PARTITION BY run_id, flow_id ORDER BY place, end_ns, step ROWS UNBOUNDED PRECEDING)::BIGINT AS sent
    FROM parts
    WHERE size > 0
), cuts AS (
    SELECT run_id, flow_id, sent FROM bursts
    UNION
    SELECT run_id, flow_id, sent FROM passed
    WHERE (run_id, flow_id) IN (SELECT (run_id, flow_id) FROM bursts)
), pieces AS (
    SELECT run_id, flow_id, sent,
           sent - coalesce(lag(sent) OVER (PARTITION BY run_id, flow_id ORDER BY sent), 0) AS transfer_bytes
    FROM cuts
), cut AS (
    SELECT b.*, p.transfer_bytes, p.sent AS piece_end, step, begin_ns AS step_begin_ns, passed.end_ns AS step_end_ns,
           greatest(b.start_ns, step_begin_ns) AS cut_start_ns, least(b.end_ns, step_end_ns) AS cut_end_ns
    FROM pieces AS p
    ASOF JOIN bursts AS b ON p.run_id = b.run_id AND p.flow_id = b.flow_id AND p.sent <= b.sent
    ASOF LEFT JOIN passed ON p.run_id = passed.run_id AND p.flow_id = passed.flow_id AND p.sent <= passed.sent
), stepping AS (
    FROM worker_hosts
    SEMI JOIN steps USING (run_id, worker)
), written AS (
    SELECT m.run_id, m.flow_id, f.src_ip, f.dst_ip, f.protocol, f.src_port, f.dst_port, message AS burst, m.first_ns AS begin_ns,
           m.first_ns + m.duration_ns + 1 AS finish_ns, m.bytes AS transfer_bytes, coalesce(s.worker, d.worker) AS worker
    FROM messages AS m
    JOIN flows AS f ON m.run_id = f.run_id AND m.flow_id = f.flow_id
    LEFT JOIN stepping AS s ON f.run_id = s.run_id AND f.src_ip = s.host_ip
    LEFT JOIN stepping AS d ON f.run_id = d.run_id AND f.dst_ip = d.host_ip
    WHERE $cut = 'messages' AND m.bytes > 0 AND f.src_ip <> f.dst_ip
      AND (f.run_id, f.src_ip) IN (SELECT (run_id, host_ip) FROM hosts)
      AND (f.run_id, f.dst_ip) IN (SELECT (run_id, host_ip) FROM hosts)
), stepped AS (
    SELECT w.* EXCLUDE worker, CASE WHEN w.begin_ns >= first_ns THEN s.step END AS step
    FROM written AS w
    ASOF LEFT JOIN spans AS s ON w.run_id = s.run_id AND w.worker = s.worker AND w.begin_ns < s.end_ns
    LEFT JOIN trainings AS t ON w.run_id = t.run_id AND w.worker = t.worker
), timed AS (  -- where log and capture disagree by more than a window, the times of the burst stand
    SELECT *, CASE WHEN cut_start_ns < cut_end_ns THEN cut_start_ns ELSE start_ns END AS begin_ns,
           CASE WHEN cut_start_ns < cut_end_ns THEN cut_end_ns ELSE end_ns END AS finish_ns
    FROM cut
), chosen AS (
    SELECT run_id, flow_id, src_ip, dst_ip, protocol, src_port, dst_port, burst, step, begin_ns, finish_ns, transfer_bytes, piece_end
    FROM timed
    UNION ALL
    SELECT run_id, flow_id, src_ip, dst_ip, protocol, src_port, dst_port, burst, step, begin_ns, finish_ns, transfer_bytes, burst
    FROM stepped
), wanted AS (
    FROM chosen
    WHERE ($traffic <> 'steps' AND $first_step IS NULL AND $last_step IS NULL)
       OR (step >= coalesce($first_step, step) AND step <= coalesce($last_step, step))
)
SELECT run_id, row_number() OVER (PARTITION BY run_id ORDER BY begin_ns, finish_ns, flow_id, piece_end) - 1 AS transfer,
       src_ip, dst_ip, protocol, src_port, dst_port, flow_id, burst, step, begin_ns AS start_ns, finish_ns AS end_ns,
       transfer_bytes
FROM wanted
ORDER BY run_id, transfer
