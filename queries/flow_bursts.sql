-- question: In which bursts does each flow send, and how long is it silent between them?
-- subject: throughput
-- row: a flow and a burst
-- inputs: flows, flow_windows
-- param: gap_ms DOUBLE > 0 = 5; a silence of this length or longer ends a burst, ms; at least the base window of the dataset
-- param: counted VARCHAR = payload; what counts as sending: payload (windows without payload are silence), or wire: every packet
-- column: run_id
-- column: src_ip
-- column: dst_ip
-- column: protocol
-- column: src_port
-- column: dst_port
-- column: flow_id from flows
-- column: burst; number of the burst in its flow, from 0
-- column: start_ns ns since the epoch, UTC; start of the burst's first base window
-- column: end_ns ns since the epoch, UTC; end of its last base window
-- column: gap_before_ms ms; silence since the flow's burst before; null for the first
-- column: burst_ms ms; end_ns - start_ns
-- column: packets packets; packets of the flow in the burst's windows that count as sending
-- column: wire_bytes bytes; sum of the packets' original lengths
-- column: payload_bytes bytes; payload of these packets
-- A burst is a row of base windows with payload; windows without payload (acknowledgements) are silence, unless
-- counted is wire. The query groups by run_id, not by a number for it, so that WHERE run_id = ... reads that run's
-- files alone.
WITH stretches AS (  -- ten times as long as the gap
    SELECT run_id, flow_id, window_start_ns // (10 * greatest(($gap_ms * 1e6)::BIGINT, window_ns)) AS stretch,
           max(greatest(($gap_ms * 1e6)::BIGINT, window_ns)) AS gap_ns,
           min(window_start_ns) AS first_ns, max(window_start_ns + window_ns) AS last_ns,
           last_ns - first_ns - count(*) * max(window_ns) >= max(greatest(($gap_ms * 1e6)::BIGINT, window_ns)) AS may_pause,
           sum(packets)::BIGINT AS packets, sum(wire_bytes)::BIGINT AS wire_bytes, sum(payload_bytes)::BIGINT AS payload_bytes
    FROM flow_windows
    WHERE payload_bytes > 0 OR $counted = 'wire'
    GROUP BY run_id, flow_id, stretch
), pausing AS (
    SELECT run_id, flow_id, stretch
    FROM stretches
    WHERE may_pause
), parts AS (  -- without a silence as long as the gap inside: only their edges need a look
    SELECT run_id, flow_id, gap_ns, first_ns, last_ns, packets, wire_bytes, payload_bytes
    FROM stretches
    WHERE NOT may_pause
    UNION ALL
    SELECT w.run_id, w.flow_id, max(greatest(($gap_ms * 1e6)::BIGINT, window_ns)),
           min(window_start_ns), max(window_start_ns + window_ns),
           sum(packets)::BIGINT, sum(wire_bytes)::BIGINT, sum(payload_bytes)::BIGINT
    FROM flow_windows AS w
    JOIN pausing AS p
        ON p.run_id = w.run_id AND p.flow_id = w.flow_id
       AND p.stretch = window_start_ns // (10 * greatest(($gap_ms * 1e6)::BIGINT, window_ns))
    WHERE payload_bytes > 0 OR $counted = 'wire'
    GROUP BY w.run_id, w.flow_id, window_start_ns // greatest(($gap_ms * 1e6)::BIGINT, window_ns)
), edges AS (
    SELECT *, first_ns - lag(last_ns) OVER (PARTITION BY run_id, flow_id ORDER BY first_ns) AS silence_ns,
           CASE WHEN coalesce(silence_ns >= gap_ns, true) THEN first_ns END AS edge_ns
    FROM parts
), marked AS (  -- each part with its burst's start: a running count of edges takes four times as long
    SELECT *, last_value(edge_ns IGNORE NULLS) OVER (PARTITION BY run_id, flow_id ORDER BY first_ns
                                                     ROWS UNBOUNDED PRECEDING) AS begin_ns
    FROM edges
), bursts AS (
    SELECT run_id, flow_id, begin_ns, max(last_ns) AS finish_ns,
           max(silence_ns) FILTER (edge_ns IS NOT NULL) AS silence_ns,
           sum(packets)::BIGINT AS packets, sum(wire_bytes)::BIGINT AS wire_bytes,
           sum(payload_bytes)::BIGINT AS payload_bytes
    FROM marked
    GROUP BY run_id, flow_id, begin_ns
)
SELECT run_id, src_ip, dst_ip, protocol, src_port, dst_port, flow_id,
       row_number() OVER (PARTITION BY run_id, flow_id ORDER BY begin_ns) - 1 AS burst,
       begin_ns AS start_ns, finish_ns AS end_ns,
       silence_ns / 1e6 AS gap_before_ms, (finish_ns - begin_ns) / 1e6 AS burst_ms,
       b.packets, b.wire_bytes, b.payload_bytes
FROM bursts AS b
JOIN flows USING (run_id, flow_id)
ORDER BY run_id, flow_id, burst
