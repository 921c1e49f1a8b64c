-- question: How much of a worker's communication does its computation hide?
-- subject: steps
-- row: a run, a worker and a step
-- inputs: steps, worker_hosts, program_events, captures, capture_ledger, capture_loss, flows, flow_windows, host_activity
-- answer: worker, step, overlap_share, problem
-- param: least_gbit_per_s DOUBLE = NULL; windows with less payload of a flow are not in wire_ms and overlap_ms, Gbit/s; NULL: as in host_activity
-- column: run_id
-- column: worker from worker_hosts
-- column: step from steps
-- column: measured_by; events: the program logged its computation; estimate: it did not; null with a problem
-- column: step_ms ms; duration of the step
-- column: compute_ms ms; events: time within compute, forward and backward events; estimate: step_ms - wire_ms
-- column: communicate_ms ms; events: time within communicate and allreduce events; estimate: wire_ms
-- column: payload_bytes bytes; payload that the worker sends and receives in the step; null without traffic of the worker, and where captures that are cut short end before the step does
-- column: overlap_bytes bytes; part of it during its computation; null for estimates
-- column: overlap_share share; overlap_bytes over payload_bytes; null for estimates
-- column: wire_ms ms; base windows of the step in which a flow of the worker moves payload, from threshold_gbit_per_s on; null as payload_bytes
-- column: overlap_ms ms; those of them within its computation; null for estimates
-- column: wire_share_of_step share; wire_ms over step_ms
-- column: window_ms ms; length of a base window: the resolution of all but step_ms and the events
-- column: threshold_gbit_per_s Gbit/s; the least rate of a flow in a window that counts in wire_ms and overlap_ms
-- column: problem; why compute_ms to wire_share_of_step but payload_bytes are null; null where nothing is wrong
-- Bytes decide what is hidden: control messages are in almost every window, and few bytes. A base window belongs to
-- where its middle is; times at which several events run count once. There is no traffic of a worker whose label is no
-- host's. A capture that is cut short, or has fewer packets than its program counted (capture_loss), ends with its last
-- packet; others end after all steps. A flow is seen until the longer one of its two hosts' captures ends; where no packet
-- of the run was captured twice (capture_ledger), hosts captured what they sent, and the sender's decides. Payload that was in a buffer when the sender's step ended is sent in its next step, and hidden there.
WITH thresholds AS (
    SELECT 0.1 AS most_at_once  -- of a worker's steps: a worker computes for one after the other, but for a restart
), activity AS MATERIALIZED (
    FROM host_activity(least_gbit_per_s := $least_gbit_per_s)
), windows AS (
    SELECT run_id, any_value(window_ns) AS window_ns
    FROM activity
    GROUP BY run_id
), intervals AS (  -- whole steps, and what the worker does in them; each once, so that both windows below have one order
    SELECT run_id, worker, step, 'step' AS kind, start_ns, end_ns FROM steps
    UNION
    SELECT run_id, worker, step, CASE WHEN kind IN ('communicate', 'allreduce') THEN 'communicate' ELSE 'compute' END,
           start_ns, end_ns
    FROM program_events
    WHERE kind IN ('compute', 'forward', 'backward', 'communicate', 'allreduce')
), begun AS (  -- intervals of a kind that run into each other are one
    SELECT *, sum(is_apart) OVER (in_time ROWS UNBOUNDED PRECEDING) AS number
    FROM (
        SELECT *,
               (start_ns > coalesce(max(end_ns) OVER (in_time ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), start_ns - 1))
                   ::INTEGER AS is_apart
        FROM intervals
        WINDOW in_time AS (PARTITION BY run_id, worker, step, kind ORDER BY start_ns, end_ns)
    )
    WINDOW in_time AS (PARTITION BY run_id, worker, step, kind ORDER BY start_ns, end_ns)
), united AS MATERIALIZED (
    SELECT run_id, worker, step, kind, min(start_ns) AS start_ns, max(end_ns) AS end_ns
    FROM begun
    GROUP BY run_id, worker, step, kind, number
), coordinators AS (
    SELECT run_id, worker, true AS is_coordinator
    FROM (
        SELECT run_id, worker, min(start_ns) < max(max(end_ns)) OVER earlier AS is_at_once
        FROM united
        WHERE kind = 'compute'
        GROUP BY run_id, worker, step
        WINDOW earlier AS (PARTITION BY run_id, worker ORDER BY min(start_ns), step ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
    )
    CROSS JOIN thresholds
    GROUP BY run_id, worker
    HAVING avg(is_at_once::INTEGER) > any_value(most_at_once)
), stretched AS (
    SELECT run_id, host_ip, worker, step, kind, start_ns, end_ns, window_ns,
           unnest(range(start_ns // (60 * window_ns), end_ns // (60 * window_ns) + 1)) * 60 * window_ns AS stretch_start_ns
    FROM united
    JOIN worker_hosts USING (run_id, worker)
    JOIN windows USING (run_id)
    WHERE kind <> 'communicate'
), bits AS (
    SELECT *,
           least(greatest(ceil((start_ns - stretch_start_ns) / window_ns - 0.5), 0), 60)::BIGINT AS first_bit,
           least(greatest(ceil((end_ns - stretch_start_ns) / window_ns - 0.5), 0), 60)::BIGINT AS end_bit,
           (1::BIGINT << greatest(first_bit, end_bit)) - (1::BIGINT << first_bit) AS inside
    FROM stretched
), masks AS (
    SELECT run_id, host_ip, worker, step, stretch_start_ns, bit_or(inside) FILTER (kind = 'step') AS in_step,
           coalesce(bit_or(inside) FILTER (kind = 'compute'), 0) & in_step AS in_compute
    FROM bits
    GROUP BY run_id, host_ip, worker, step, stretch_start_ns
), mask_lists AS (  -- a row a run, so that DuckDB builds its joins on this side and not on the windows
    SELECT run_id, list({'host_ip': host_ip, 'worker': worker, 'step': step, 'stretch_start_ns': stretch_start_ns,
                         'in_step': in_step, 'in_compute': in_compute}) AS masks
    FROM masks
    GROUP BY run_id
), listed AS MATERIALIZED (
    SELECT run_id, unnest(masks, recursive := true)
    FROM mask_lists
), wire AS (
    SELECT run_id, worker, step, sum(bit_count((sent | received) & in_step) * window_ns) / 1e6 AS wire_ms,
           sum(bit_count((sent | received) & in_compute) * window_ns) / 1e6 AS overlap_ms
    FROM listed
    JOIN activity USING (run_id, host_ip, stretch_start_ns)
    GROUP BY run_id, worker, step
), sums AS MATERIALIZED (  -- of a flow, for its sender's and its receiver's step
    SELECT run_id, src_ip, dst_ip, s.step AS src_step, r.step AS dst_step, sum(w.payload_bytes) AS payload,
           sum(w.payload_bytes) FILTER (s.in_compute >> (window_start_ns // window_ns % 60) & 1 = 1) AS src_hidden,
           sum(w.payload_bytes) FILTER (r.in_compute >> (window_start_ns // window_ns % 60) & 1 = 1) AS dst_hidden
    FROM flow_windows AS w
    JOIN flows USING (run_id, flow_id)
    LEFT JOIN listed AS s ON s.run_id = flows.run_id AND s.host_ip = src_ip
                        AND s.stretch_start_ns = window_start_ns // (60 * window_ns) * 60 * window_ns
                        AND s.in_step >> (window_start_ns // window_ns % 60) & 1 = 1
    LEFT JOIN listed AS r ON r.run_id = flows.run_id AND r.host_ip = dst_ip
                        AND r.stretch_start_ns = window_start_ns // (60 * window_ns) * 60 * window_ns
                        AND r.in_step >> (window_start_ns // window_ns % 60) & 1 = 1
    WHERE w.payload_bytes > 0
    GROUP BY ALL
), volumes AS (
    SELECT run_id, host_ip, step, sum(payload)::BIGINT AS payload_bytes, coalesce(sum(hidden), 0)::BIGINT AS overlap_bytes
    FROM (
        SELECT run_id, src_ip AS host_ip, src_step AS step, payload, src_hidden AS hidden FROM sums
        UNION ALL
        SELECT run_id, dst_ip, dst_step, payload, dst_hidden FROM sums
    )
    WHERE step IS NOT NULL
    GROUP BY ALL
), phases AS (
    SELECT run_id, worker, step,
           sum(end_ns - start_ns) FILTER (kind = 'compute') / 1e6 AS compute_ms,
           sum(end_ns - start_ns) FILTER (kind = 'communicate') / 1e6 AS communicate_ms
    FROM united
    GROUP BY run_id, worker, step
), limits AS (
    SELECT run_id, host_ip, any_value(threshold_gbit_per_s) AS threshold_gbit_per_s
    FROM activity
    GROUP BY run_id, host_ip
), capture_ends AS (  -- null: not cut short
    SELECT run_id, vantage_ip AS host_ip, CASE WHEN bool_or(status <> 'complete' OR cut_packets > 0) THEN max(last_ns) END AS cut_ns
    FROM captures
    JOIN capture_loss() USING (run_id, capture_id)
    WHERE vantage_ip IS NOT NULL
    GROUP BY run_id, vantage_ip
), of_senders AS (
    SELECT run_id
    FROM capture_ledger
    GROUP BY run_id
    HAVING count(*) FILTER (reason = 'duplicate_vantage') = 0
), peers AS (
    SELECT DISTINCT run_id, unnest([src_ip, dst_ip]) AS host_ip, unnest([dst_ip, src_ip]) AS peer_ip
    FROM flows
    WHERE payload_bytes > 0 AND run_id IN (SELECT run_id FROM capture_ends WHERE cut_ns IS NOT NULL)
), seen_until AS (  -- null: to the end
    SELECT peers.run_id, peers.host_ip,
           min(CASE WHEN peers.run_id IN (FROM of_senders) THEN least(a.cut_ns, b.cut_ns)  -- ignores nulls
                    WHEN b.host_ip IS NULL THEN a.cut_ns
                    WHEN a.host_ip IS NULL THEN b.cut_ns
                    WHEN a.cut_ns IS NOT NULL AND b.cut_ns IS NOT NULL THEN greatest(a.cut_ns, b.cut_ns) END) AS seen_ns
    FROM peers
    LEFT JOIN capture_ends AS a ON a.run_id = peers.run_id AND a.host_ip = peers.host_ip
    LEFT JOIN capture_ends AS b ON b.run_id = peers.run_id AND b.host_ip = peer_ip
    GROUP BY peers.run_id, peers.host_ip
), measured AS (
    SELECT run_id, worker, step, (end_ns - start_ns) / 1e6 AS step_ms, p.compute_ms, p.communicate_ms,
           host_ip IS NOT NULL AND window_ns IS NOT NULL AND end_ns <= coalesce(seen_ns, end_ns) AS is_seen,
           CASE WHEN is_seen AND is_coordinator IS NULL THEN coalesce(wire_ms, 0) END AS wire_ms, overlap_ms, is_coordinator,
           CASE WHEN is_seen THEN coalesce(payload_bytes, 0) END AS payload_bytes,
           overlap_bytes, window_ns / 1e6 AS window_ms, p.compute_ms IS NOT NULL AND is_coordinator IS NULL AS by_events, threshold_gbit_per_s
    FROM steps
    LEFT JOIN phases AS p USING (run_id, worker, step)
    LEFT JOIN coordinators USING (run_id, worker)
    LEFT JOIN worker_hosts USING (run_id, worker)
    LEFT JOIN windows USING (run_id)
    LEFT JOIN wire USING (run_id, worker, step)
    LEFT JOIN volumes USING (run_id, host_ip, step)
    LEFT JOIN limits USING (run_id, host_ip)
    LEFT JOIN seen_until USING (run_id, host_ip)
)
SELECT run_id, worker, step, CASE WHEN by_events THEN 'events' WHEN is_coordinator IS NULL THEN 'estimate' END AS measured_by, step_ms,
       CASE WHEN by_events THEN compute_ms WHEN wire_ms IS NOT NULL THEN greatest(step_ms - wire_ms, 0) END AS compute_ms,
       CASE WHEN by_events THEN communicate_ms ELSE wire_ms END AS communicate_ms,
       payload_bytes,
       CASE WHEN by_events AND payload_bytes IS NOT NULL THEN coalesce(overlap_bytes, 0) END AS overlap_bytes,
       CASE WHEN by_events THEN coalesce(overlap_bytes, 0) / nullif(payload_bytes, 0) END AS overlap_share,
       wire_ms,
       CASE WHEN by_events AND wire_ms IS NOT NULL THEN coalesce(overlap_ms, 0) END AS overlap_ms,
       wire_ms / nullif(step_ms, 0) AS wire_share_of_step,
       window_ms, threshold_gbit_per_s,
       CASE WHEN is_coordinator THEN 'several steps of its log are computed at the same time: those of other hosts, which it hands out' END AS problem
FROM measured
ORDER BY run_id, worker, step
