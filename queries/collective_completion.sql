-- question: When is the exchange of each step complete, and what delays it?
-- subject: collectives
-- row: a run, a step and a way of measuring it
-- inputs: collective_flows, flow_windows, steps, hosts, program_events, parameter_servers, step_synchrony
-- answer: step, completion_ms, last_worker, problem
-- column: run_id
-- column: step from steps
-- column: measured_by; events: the program logged its communication; wire: base windows of the flows that carry the exchange
-- column: begin_ns ns since the epoch, UTC; when the first worker starts its communication (events), or of the interval (wire)
-- column: end_ns ns since the epoch, UTC; when the last worker ends it, or of the interval
-- column: completion_ms ms; end_ns - begin_ns; null with a problem, as exchange_ms
-- column: exchange_ms ms; events: from the last worker's start to end_ns, as in nccl-tests, where all start together; wire: completion_ms
-- column: last_worker; host of the last worker to start; of several at a time the first as text
-- column: last_start_ms ms; its start after begin_ns: what the others wait for it
-- column: retransmitted_bytes bytes; payload of the step's exchange that was sent again; null where the capture does not tell
-- column: stalled_ms ms; pauses of a flow in the interval that end with a retransmission, of the flow that pauses longest
-- column: stalled_src_ip; its sender; null without a stall
-- column: stalled_dst_ip; its receiver
-- column: slowest_src_ip; sender of the pair whose flows carry least payload for each window in which they move
-- column: slowest_dst_ip; its receiver
-- column: slowest_gbit_per_s Gbit/s; payload of that pair over its windows
-- column: payload_bytes bytes; payload of the step on the flows that carry the exchange
-- column: link_bytes bytes; wire bytes that the busiest host sent, or received, on them
-- column: moving_ms ms; windows of the interval in which the busiest host sent or received payload on them; null in asynchronous training and without a log of a host that takes part
-- column: window_ms ms; length of a base window, the resolution of wire; 0 to 1 of it is added at both ends of the interval
-- column: problem; why the times are null; null where they are not
-- It counts the flows of collective_flows, and the steps of the logs named there. A base window belongs to the step
-- that its middle is in. The interval is the shortest one of whole windows with 99% of the step's payload: control
-- messages travel on the same flows. It and the last four groups of columns are the same in both rows of a step. By the
-- wire a worker starts with its first window in the interval that has a hundredth of the payload of its flow's fastest
-- window in the run, or more. Where hosts with one partner take part (leaves of a star or tree), only they count, since
-- the others send when they have received. Events count where every host of the exchange but a parameter server has
-- some. Asynchronous workers have no exchange in common (step_synchrony).
WITH thresholds AS (
    SELECT 99 AS held_percent,          -- of a step's payload: what the interval holds
           0.01 AS least_of_fastest     -- of a flow's fastest window: with less it does not start
), carrying AS MATERIALIZED (
    FROM collective_flows
), carrying_lists AS (  -- a row a run, so that DuckDB builds its joins on this side and not on the windows
    SELECT run_id, list(flow_id) AS flow_ids
    FROM carrying
    GROUP BY run_id
), fastest AS (
    SELECT w.run_id, flow_id, any_value(window_ns) AS window_ns, max(payload_bytes) AS fastest
    FROM flow_windows AS w
    JOIN carrying_lists USING (run_id)
    WHERE list_contains(flow_ids, flow_id)
    GROUP BY w.run_id, flow_id
), numbered AS (  -- numbers for a flow and for the logs that end its steps: text takes twice as long to join and to group by
    SELECT run_id, flow_id, worker, sender, window_ns, fastest, row_number() OVER (ORDER BY run_id, flow_id) AS flow_number,
           dense_rank() OVER (ORDER BY run_id, worker, sender) AS log_number
    FROM fastest
    JOIN carrying USING (run_id, flow_id)
), numbered_list AS (  -- one row, so that DuckDB expects few rows of it and builds the join on them, not on the windows
    SELECT list({'run_id': run_id, 'flow_id': flow_id, 'flow_number': flow_number, 'worker': worker, 'sender': sender,
                 'log_number': log_number, 'window_ns': window_ns, 'fastest': fastest}) AS flows
    FROM numbered
), read AS MATERIALIZED (
    SELECT unnest(flows, recursive := true)
    FROM numbered_list
), own_ends AS (
    SELECT steps.run_id, log_number, steps.step,
           greatest(steps.end_ns, coalesce(s.end_ns, steps.end_ns)) AS end_ns, steps.start_ns
    FROM steps
    JOIN (SELECT DISTINCT run_id, worker, sender, log_number FROM read) AS r USING (run_id, worker)
    LEFT JOIN steps AS s ON s.run_id = steps.run_id AND s.worker = sender AND s.step = steps.step
), spans AS (  -- a pause between two steps counts to the later one, as in step_flows
    SELECT run_id, log_number, step, end_ns,
           coalesce(lag(end_ns) OVER (PARTITION BY log_number ORDER BY end_ns, step), start_ns) AS begin_ns
    FROM own_ends
), stretched AS (  -- in stretches of 30 windows, each with few steps
    SELECT run_id, log_number, step, begin_ns, end_ns,
           unnest(range(begin_ns // (30 * window_ns), end_ns // (30 * window_ns) + 1)) AS stretch
    FROM spans
    JOIN (SELECT run_id, any_value(window_ns) AS window_ns FROM read GROUP BY run_id) USING (run_id)
), stretch_lists AS (
    SELECT run_id, list({'log_number': log_number, 'step': step, 'begin_ns': begin_ns, 'end_ns': end_ns,
                         'stretch': stretch}) AS stretches
    FROM stretched
    GROUP BY run_id
), listed AS MATERIALIZED (
    SELECT run_id, unnest(stretches, recursive := true)
    FROM stretch_lists
), flow_sums AS (
    SELECT flow_number, step, s.stretch, any_value(w.window_ns) AS window_ns,
           sum(payload_bytes) AS payload, sum(wire_bytes) AS wire, sum(retransmitted_bytes) AS again,
           bit_or(1::BIGINT << (window_start_ns // w.window_ns % 30)) AS sent,
           bit_or(1::BIGINT << (window_start_ns // w.window_ns % 30))
               FILTER (payload_bytes >= least_of_fastest * fastest) AS begun,
           bit_or(1::BIGINT << (window_start_ns // w.window_ns % 30)) FILTER (retransmitted_bytes > 0) AS sent_again
    FROM flow_windows AS w
    JOIN read USING (run_id, flow_id)
    LEFT JOIN listed AS s ON s.log_number = read.log_number AND s.stretch = window_start_ns // (30 * w.window_ns)
                            AND window_start_ns + w.window_ns // 2 >= begin_ns AND window_start_ns + w.window_ns // 2 < end_ns
    CROSS JOIN thresholds
    WHERE payload_bytes > 0
    GROUP BY flow_number, step, s.stretch
), sums AS MATERIALIZED (
    SELECT run_id, flow_id, flow_sums.* EXCLUDE flow_number
    FROM flow_sums
    JOIN (SELECT flow_number, run_id, flow_id FROM read) USING (flow_number)
), edges AS MATERIALIZED (  -- stretches in which the interval may begin or end
    SELECT *
    FROM (
        SELECT run_id, step, stretch, total,
               (sum(payload) OVER (of_step ROWS UNBOUNDED PRECEDING) - payload)::BIGINT AS before,
               payload::BIGINT AS payload
        FROM (SELECT run_id, step, stretch, sum(payload) AS payload FROM sums
              WHERE step IS NOT NULL GROUP BY run_id, step, stretch)
        JOIN (SELECT run_id, step, sum(payload)::BIGINT AS total FROM sums GROUP BY run_id, step) USING (run_id, step)
        WINDOW of_step AS (PARTITION BY run_id, step ORDER BY stretch)
    )
    CROSS JOIN thresholds
    WHERE 100 * before <= (100 - held_percent) * total OR 100 * (before + payload) >= held_percent * total
), near_lists AS (
    SELECT run_id, list({'log_number': log_number, 'step': step, 'begin_ns': begin_ns, 'end_ns': end_ns,
                         'stretch': stretch}) AS stretches
    FROM listed
    SEMI JOIN edges USING (run_id, step, stretch)
    GROUP BY run_id
), near AS MATERIALIZED (
    SELECT run_id, unnest(stretches, recursive := true)
    FROM near_lists
), windows AS (
    SELECT w.run_id, step, s.stretch, window_start_ns, any_value(w.window_ns) AS window_ns,
           sum(payload_bytes)::BIGINT AS payload
    FROM flow_windows AS w
    JOIN read USING (run_id, flow_id)
    JOIN near AS s ON s.run_id = w.run_id AND s.log_number = read.log_number
                  AND s.stretch = window_start_ns // (30 * w.window_ns)
                  AND window_start_ns + w.window_ns // 2 >= begin_ns AND window_start_ns + w.window_ns // 2 < end_ns
    WHERE payload_bytes > 0
    GROUP BY w.run_id, step, s.stretch, window_start_ns
), passed AS MATERIALIZED (
    SELECT run_id, step, window_start_ns, window_ns, w.payload, total,
           (before + sum(w.payload) OVER (of_stretch ROWS UNBOUNDED PRECEDING))::BIGINT AS passed
    FROM windows AS w
    JOIN edges USING (run_id, step, stretch)
    WINDOW of_stretch AS (PARTITION BY run_id, step, stretch ORDER BY window_start_ns)
), begins AS (
    SELECT *, passed - payload + (held_percent * total + 99) // 100 AS wanted
    FROM passed
    CROSS JOIN thresholds
    WHERE 100 * (passed - payload) <= (100 - held_percent) * total
), intervals AS MATERIALIZED (
    SELECT b.run_id, b.step, min((e.window_start_ns + e.window_ns - b.window_start_ns, b.window_start_ns)) AS shortest,
           shortest[2] AS begin_ns, shortest[1] + begin_ns AS end_ns
    FROM begins AS b
    ASOF JOIN passed AS e ON e.run_id = b.run_id AND e.step = b.step AND e.passed >= b.wanted
    GROUP BY b.run_id, b.step
), parts AS MATERIALIZED (  -- of the flows, their windows in the interval
    SELECT run_id, step, flow_id, src_ip, dst_ip, stretch, window_ns, payload, wire, again,
           least(greatest(begin_ns // window_ns - 30 * stretch, 0), 30) AS first_bit,
           least(greatest(end_ns // window_ns - 30 * stretch, 0), 30) AS end_bit,
           (1::BIGINT << end_bit) - (1::BIGINT << first_bit) AS inside,
           sent & inside AS sent, coalesce(begun, 0) & inside AS begun, coalesce(sent_again, 0) & inside AS sent_again
    FROM sums
    JOIN carrying USING (run_id, flow_id)
    JOIN intervals USING (run_id, step)
), ends AS (
    SELECT run_id, step, stretch, src_ip AS host_ip, 'sent' AS direction, wire, sent, window_ns FROM parts
    UNION ALL
    SELECT run_id, step, stretch, dst_ip, 'received', wire, sent, window_ns FROM parts
), links AS (
    SELECT run_id, step, max(wire)::BIGINT AS link_bytes
    FROM (SELECT run_id, step, sum(wire) AS wire FROM ends GROUP BY run_id, step, host_ip, direction)
    GROUP BY run_id, step
), moving AS (
    SELECT run_id, step, max(windows) * any_value(window_ns) / 1e6 AS moving_ms
    FROM (
        SELECT run_id, step, sum(bit_count(sent)) AS windows, any_value(window_ns) AS window_ns
        FROM (SELECT run_id, step, host_ip, bit_or(sent) AS sent, any_value(window_ns) AS window_ns
              FROM ends GROUP BY run_id, step, host_ip, stretch)
        GROUP BY run_id, step, host_ip
    )
    GROUP BY run_id, step
), pairs AS (
    SELECT run_id, step, src_ip, dst_ip, 8 * sum(payload) / (sum(bit_count(sent)) * any_value(window_ns)) AS gbit_per_s
    FROM (SELECT run_id, step, src_ip, dst_ip, sum(payload) AS payload, bit_or(sent) AS sent, any_value(window_ns) AS window_ns
          FROM parts GROUP BY run_id, step, src_ip, dst_ip, stretch)
    GROUP BY run_id, step, src_ip, dst_ip
    HAVING sum(bit_count(sent)) > 0
), slowest AS (
    SELECT run_id, step, min((gbit_per_s, src_ip, dst_ip)) AS pair
    FROM pairs
    GROUP BY run_id, step
), volumes AS (
    SELECT run_id, step, sum(payload)::BIGINT AS payload_bytes, sum(again)::BIGINT AS retransmitted_bytes,
           any_value(window_ns) AS window_ns
    FROM parts
    GROUP BY run_id, step
), placed AS (  -- number of a flow's last window before the stretch
    SELECT *, lag(CASE WHEN sent <> 0 THEN 30 * stretch + length(bin(sent)) - 1 END IGNORE NULLS) OVER of_flow AS last_before
    FROM parts
    WINDOW of_flow AS (PARTITION BY run_id, step, flow_id ORDER BY stretch)
), repeated AS (
    SELECT *, unnest(list_filter(range(30), lambda bit: sent_again >> bit & 1 = 1)) AS again_bit,
           sent & ((1::BIGINT << again_bit) - 1) AS before
    FROM placed
    WHERE sent_again <> 0
), pauses AS (
    SELECT run_id, step, src_ip, dst_ip, flow_id,
           sum(30 * stretch + again_bit - 1
               - CASE WHEN before <> 0 THEN 30 * stretch + length(bin(before)) - 1 ELSE last_before END)
               * any_value(window_ns) / 1e6 AS stalled_ms
    FROM repeated
    GROUP BY ALL
), stalls AS (
    SELECT run_id, step, max(stalled_ms) AS stalled_ms, arg_max((src_ip, dst_ip), (stalled_ms, -flow_id)) AS pair
    FROM pauses
    WHERE stalled_ms > 0
    GROUP BY run_id, step
), members AS MATERIALIZED (  -- hosts of the exchange
    SELECT run_id, host_ip, any_value(label) AS worker, count(DISTINCT partner_ip) AS partners,
           (run_id, host_ip) IN (SELECT (run_id, host_ip) FROM parameter_servers) AS is_server
    FROM (
        SELECT run_id, src_ip AS host_ip, dst_ip AS partner_ip FROM carrying
        UNION ALL
        SELECT run_id, dst_ip, src_ip FROM carrying
    )
    LEFT JOIN hosts USING (run_id, host_ip)
    GROUP BY run_id, host_ip
), wire_starts AS (
    SELECT run_id, step, coalesce(worker, host_ip) AS worker,
           min((30 * stretch + length(bin(begun & -begun)) - 1) * window_ns) AS start_ns
    FROM parts
    JOIN (FROM members QUALIFY partners = 1 OR min(partners) OVER (PARTITION BY run_id) > 1) AS m USING (run_id)
    WHERE m.host_ip = src_ip AND begun <> 0
    GROUP BY ALL
), logged AS (
    SELECT run_id, step, worker, min(start_ns) AS start_ns, max(end_ns) AS end_ns
    FROM program_events
    SEMI JOIN members USING (run_id, worker)
    WHERE kind IN ('communicate', 'allreduce')
    GROUP BY run_id, step, worker
), wanted AS (
    SELECT run_id, count(*) FILTER (NOT is_server) AS workers,
           bool_or((run_id, worker) IN (SELECT (run_id, worker) FROM steps)) AS has_log
    FROM members
    GROUP BY run_id
), event_times AS (
    SELECT run_id, step, 'events' AS measured_by, min(start_ns) AS begin_ns, max(l.end_ns) AS end_ns, max(start_ns) AS last_ns,
           arg_min(worker, (-start_ns, worker)) AS last_worker,
           any_value(workers) - count(*) FILTER (NOT is_server) AS without
    FROM logged AS l
    JOIN members USING (run_id, worker)
    JOIN wanted USING (run_id)
    GROUP BY run_id, step
), times AS (
    SELECT run_id, step, measured_by, begin_ns, end_ns, last_ns, last_worker, last_ns AS from_ns,
           CASE WHEN without > 0 THEN 'no events of ' || without || ' of ' || workers || ' workers' END AS problem
    FROM event_times
    JOIN wanted USING (run_id)
    UNION ALL
    SELECT run_id, step, 'wire', any_value(begin_ns), any_value(end_ns), max(start_ns), arg_min(worker, (-start_ns, worker)),
           any_value(begin_ns), NULL
    FROM intervals
    LEFT JOIN wire_starts USING (run_id, step)
    GROUP BY run_id, step
), judged AS (
    SELECT * EXCLUDE problem,
           CASE WHEN is_asynchronous THEN 'asynchronous: the workers have no exchange in common'
                WHEN NOT has_log THEN 'no log of a host that takes part'
                ELSE problem END AS problem
    FROM times
    JOIN wanted USING (run_id)
    LEFT JOIN step_synchrony USING (run_id)
)
SELECT run_id, step, measured_by,
       CASE WHEN problem IS NULL THEN begin_ns END AS begin_ns,
       CASE WHEN problem IS NULL THEN end_ns END AS end_ns,
       CASE WHEN problem IS NULL THEN (end_ns - begin_ns) / 1e6 END AS completion_ms,
       CASE WHEN problem IS NULL THEN (end_ns - from_ns) / 1e6 END AS exchange_ms,
       CASE WHEN problem IS NULL THEN last_worker END AS last_worker,
       CASE WHEN problem IS NULL THEN (last_ns - begin_ns) / 1e6 END AS last_start_ms,
       retransmitted_bytes, coalesce(stalled_ms, 0) AS stalled_ms,
       stalls.pair[1] AS stalled_src_ip, stalls.pair[2] AS stalled_dst_ip,
       slowest.pair[2] AS slowest_src_ip, slowest.pair[3] AS slowest_dst_ip, slowest.pair[1] AS slowest_gbit_per_s,
       payload_bytes, link_bytes,
       CASE WHEN is_asynchronous OR NOT has_log THEN NULL ELSE moving_ms END AS moving_ms, window_ns / 1e6 AS window_ms, problem
FROM judged
JOIN volumes USING (run_id, step)
LEFT JOIN links USING (run_id, step)
LEFT JOIN moving USING (run_id, step)
LEFT JOIN slowest USING (run_id, step)
LEFT JOIN stalls USING (run_id, step)
ORDER BY run_id, step, measured_by
