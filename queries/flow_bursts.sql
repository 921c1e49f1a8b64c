-- question: In which bursts does each flow send, and how long is it silent between them?
-- row: a flow and a burst
-- inputs: flows, flow_windows
-- param: gap_ms DOUBLE > 0 = 5; a silence of so long or longer ends a burst, ms; at least the base window of the dataset
-- param: counted VARCHAR = payload; what sends: payload (windows without are silence), or wire: every packet
-- A burst is a stretch of base windows with payload; windows without (acknowledgements) are silence, unless counted is
-- wire. Its begin and end are those of base windows. gap_before_ms is the silence since the flow's burst before.
WITH numbers AS MATERIALIZED (  -- grouping by a number is a third quicker than by text
    SELECT run_id, row_number() OVER (ORDER BY run_id) AS run_number
    FROM flows
    GROUP BY run_id
), bins AS MATERIALIZED (  -- inside a bin as long as the gap there is none: only the bins' edges need a look
    SELECT run_number, flow_id, window_start_ns // greatest(($gap_ms * 1e6)::BIGINT, window_ns) AS bin,
           max(greatest(($gap_ms * 1e6)::BIGINT, window_ns)) AS gap_ns,
           min(window_start_ns) AS first_ns, max(window_start_ns + window_ns) AS last_ns,
           sum(packets)::BIGINT AS packets, sum(wire_bytes)::BIGINT AS wire_bytes, sum(payload_bytes)::BIGINT AS payload_bytes
    FROM flow_windows
    JOIN numbers USING (run_id)
    WHERE payload_bytes > 0 OR $counted = 'wire'
    GROUP BY run_number, flow_id, bin
), edges AS (  -- where a burst begins
    SELECT b.run_number, b.flow_id, b.bin AS first_bin
    FROM bins AS b
    LEFT JOIN bins AS before ON before.run_number = b.run_number AND before.flow_id = b.flow_id AND before.bin = b.bin - 1
    WHERE coalesce(b.first_ns - before.last_ns >= b.gap_ns, true)
), bursts AS (
    SELECT e.run_number, e.flow_id, first_bin, min(first_ns) AS begin_ns, max(last_ns) AS finish_ns,
           sum(packets)::BIGINT AS packets, sum(wire_bytes)::BIGINT AS wire_bytes,
           sum(payload_bytes)::BIGINT AS payload_bytes
    FROM bins AS b
    ASOF JOIN edges AS e ON e.run_number = b.run_number AND e.flow_id = b.flow_id AND e.first_bin <= b.bin
    GROUP BY e.run_number, e.flow_id, first_bin
)
SELECT run_id, src_ip, dst_ip, protocol, src_port, dst_port, flow_id,
       row_number() OVER in_time - 1 AS burst, begin_ns AS start_ns, finish_ns AS end_ns,
       (begin_ns - lag(finish_ns) OVER in_time) / 1e6 AS gap_before_ms, (finish_ns - begin_ns) / 1e6 AS burst_ms,
       b.packets, b.wire_bytes, b.payload_bytes
FROM bursts AS b
JOIN numbers USING (run_number)
JOIN flows USING (run_id, flow_id)
WINDOW in_time AS (PARTITION BY run_id, flow_id ORDER BY first_bin)
ORDER BY run_id, flow_id, burst
