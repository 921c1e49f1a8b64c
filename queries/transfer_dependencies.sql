-- question: Which transfers does each transfer wait for, and how long does its sender compute before it begins?
-- subject: steps
-- row: a run and a transfer (step_transfers) and one that it waits for; one row with needs_transfer null where it waits for none
-- inputs: step_transfers, program_events, worker_hosts
-- param: gap_ms DOUBLE > 0 = 5; a silence of this length or longer ends a transfer, ms; at least the base window of the dataset
-- param: cut VARCHAR = bursts; what a transfer is: bursts or messages, as in step_transfers
-- param: counted VARCHAR = payload; what transfer_bytes counts: payload, or wire: whole frames, acknowledgements too
-- param: traffic VARCHAR = all; all of the run, or steps: only what was sent in its training steps
-- param: first_step BIGINT = NULL; only what was sent in this step and later ones; NULL: from the first
-- param: last_step BIGINT = NULL; only what was sent in this step and earlier ones; NULL: to the last
-- column: run_id
-- column: transfer; number of the transfer, as in step_transfers with the same parameters
-- column: after_transfer; transfer that its sender begins before it; null for the sender's first
-- column: needs_transfer; transfer to its sender that must have ended; null where it waits for none
-- column: delay_ns ns; from the end of the last transfer or start it waits for to its own start
-- column: compute_ns ns; part of delay_ns in which the sender computed; null where it logs no computation
-- A host begins its transfers one after the other: each waits until the one before has begun, and for all that the host
-- has completely received since then: of each sending host the latest transfer, and that of this step or the one
-- before. delay_ns counts from the last of these, or from the start of all transfers where nothing comes before. So a
-- transfer waits only for what ended before it began, nothing waits in a circle, and with each end in its measured
-- place each start is in its own.
-- The sender computes in its compute, forward, backward and update events. The rest of delay_ns is waiting: for data
-- that is not known to be needed, or that came too late.
WITH transfers AS MATERIALIZED (
    FROM step_transfers(gap_ms := $gap_ms, cut := $cut, counted := $counted, traffic := $traffic, first_step := $first_step,
                        last_step := $last_step)
), begun AS (
    SELECT run_id, src_ip, start_ns, min(transfer) AS transfer, arg_min(step, transfer) AS step
    FROM transfers
    GROUP BY ALL
), received AS (  -- what a host received, with the first transfer that it began then or later
    SELECT t.run_id, b.transfer, t.src_ip, t.transfer AS needs_transfer, t.end_ns
    FROM transfers AS t
    ASOF JOIN begun AS b ON t.run_id = b.run_id AND t.dst_ip = b.src_ip AND t.end_ns <= b.start_ns
    WHERE coalesce(b.step - t.step <= 1, true)
), needed AS (
    FROM received
    QUALIFY row_number() OVER (PARTITION BY run_id, transfer, src_ip ORDER BY end_ns DESC, needs_transfer DESC) = 1
), ready AS (
    SELECT run_id, transfer, max(end_ns) AS ready_ns
    FROM needed
    GROUP BY ALL
), placed AS (
    SELECT t.run_id, t.transfer, src_ip, start_ns,
           lag(t.transfer) OVER host_order AS after_transfer,
           greatest(lag(start_ns) OVER host_order, ready_ns, min(start_ns) OVER (PARTITION BY t.run_id)) AS ready_ns
    FROM transfers AS t
    LEFT JOIN ready AS r ON t.run_id = r.run_id AND t.transfer = r.transfer
    WINDOW host_order AS (PARTITION BY t.run_id, src_ip ORDER BY t.transfer)
), computed AS (
    SELECT run_id, host_ip, start_ns, end_ns,
           (start_ns <= max(end_ns) OVER (PARTITION BY run_id, host_ip ORDER BY start_ns, end_ns
                                          ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)) IS NOT TRUE AS is_first
    FROM (SELECT DISTINCT run_id, host_ip, start_ns, end_ns  -- else the order below may be another one
          FROM program_events
          JOIN worker_hosts USING (run_id, worker)
          WHERE kind IN ('compute', 'forward', 'backward', 'update'))
), numbered AS (
    SELECT *, sum(is_first::INTEGER) OVER (PARTITION BY run_id, host_ip ORDER BY start_ns, end_ns
                                           ROWS UNBOUNDED PRECEDING) AS stretch
    FROM computed
), stretches AS (  -- of several events at a time one
    SELECT run_id, host_ip, min(start_ns) AS begin_ns, max(end_ns) AS finish_ns
    FROM numbered
    GROUP BY run_id, host_ip, stretch
), summed AS (
    SELECT *, sum(finish_ns - begin_ns) OVER (PARTITION BY run_id, host_ip ORDER BY begin_ns ROWS UNBOUNDED PRECEDING)
                  - (finish_ns - begin_ns) AS before_ns
    FROM stretches
), busy AS (
    SELECT p.*,
           coalesce(s.before_ns + least(p.start_ns, s.finish_ns) - s.begin_ns, 0) AS busy_to_start_ns,
           coalesce(r.before_ns + least(p.ready_ns, r.finish_ns) - r.begin_ns, 0) AS busy_to_ready_ns
    FROM placed AS p
    ASOF LEFT JOIN summed AS s ON p.run_id = s.run_id AND p.src_ip = s.host_ip AND p.start_ns >= s.begin_ns
    ASOF LEFT JOIN summed AS r ON p.run_id = r.run_id AND p.src_ip = r.host_ip AND p.ready_ns >= r.begin_ns
), hosts_with_events AS (
    SELECT DISTINCT run_id, host_ip FROM stretches
)
SELECT b.run_id, b.transfer, b.after_transfer, n.needs_transfer, b.start_ns - b.ready_ns AS delay_ns,
       CASE WHEN t.host_ip IS NOT NULL THEN busy_to_start_ns - busy_to_ready_ns END::BIGINT AS compute_ns
FROM busy AS b
LEFT JOIN needed AS n ON b.run_id = n.run_id AND b.transfer = n.transfer
LEFT JOIN hosts_with_events AS t ON b.run_id = t.run_id AND b.src_ip = t.host_ip
ORDER BY b.run_id, b.transfer, needs_transfer
