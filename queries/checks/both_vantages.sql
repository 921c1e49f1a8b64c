-- question: Which packets are likely to count at both their ends?
-- row: a flow or a capture, and the evidence
-- inputs: runs, flows, captures, capture_ledger, packets
-- column: run_id from flows
-- column: flow_id; number of the flow; null where a capture is meant
-- column: capture_id; name of the capture file; null where a flow is meant
-- column: problem; the evidence
-- A packet captured at two hosts counts at one (duplicate_vantage in the ledger). Evidence that it counted at both:
-- packets of a flow come from captures of several hosts (visible only with --packets); two files hold the same records
-- and equally many of both count; the same five-tuple is there inside and outside of a tunnel with the same packets; or
-- half of the payload of a flow of more than 1 MB looks sent again, as in a file that holds both ends' packets or a
-- mirror port of both directions. Hosts of a ring that ns-3 simulates may send the same at the same nanosecond.
WITH thresholds AS (
    SELECT 1_000_000 AS least_payload_bytes,  -- of a flow whose payload may look sent again: a smaller one shows nothing
           0.45 AS least_repeated_share,      -- of its payload: each packet there twice is half of it,
           0.55 AS most_repeated_share        -- retransmissions on the way are hardly ever so many
), several_hosts AS (
    SELECT run_id, flow_id, count(DISTINCT vantage_ip) AS vantages
    FROM packets
    JOIN captures USING (run_id, capture_id)
    GROUP BY run_id, flow_id
    HAVING vantages > 1
), counting AS (
    SELECT c.run_id, c.capture_id, c.records, c.wire_bytes, c.first_ns, c.last_ns, l.packets
    FROM captures AS c
    JOIN capture_ledger AS l ON l.run_id = c.run_id AND l.capture_id = c.capture_id AND l.reason = 'in_flows'
    ANTI JOIN (FROM runs WHERE source = 'ns3') AS r ON r.run_id = c.run_id
), problems AS (
    SELECT run_id, flow_id, NULL AS capture_id, 'packets of captures at ' || vantages || ' hosts count' AS problem
    FROM several_hosts
    UNION ALL
    SELECT a.run_id, NULL, a.capture_id, 'holds the same records as ' || b.capture_id || ', and as many of both count'
    FROM counting AS a
    JOIN counting AS b USING (run_id, records, wire_bytes, first_ns, last_ns, packets)
    WHERE a.capture_id <> b.capture_id AND packets > 0
    UNION ALL
    SELECT DISTINCT a.run_id, a.flow_id, NULL, 'flow ' || b.flow_id || ' has the same packets in another tunnel, or in none'
    FROM flows AS a
    JOIN flows AS b USING (run_id, src_ip, dst_ip, protocol, src_port, dst_port, packets, payload_bytes)
    WHERE a.flow_id <> b.flow_id AND a.encapsulation_id IS DISTINCT FROM b.encapsulation_id
      AND a.roce_dest_qp IS NOT DISTINCT FROM b.roce_dest_qp AND payload_bytes > 0
      AND a.first_seen_ns <= b.last_seen_ns AND b.first_seen_ns <= a.last_seen_ns
    UNION ALL
    SELECT run_id, flow_id, NULL, 'about half of its payload was there before'
    FROM flows
    CROSS JOIN thresholds
    WHERE payload_bytes > least_payload_bytes
      AND retransmitted_bytes BETWEEN least_repeated_share * payload_bytes AND most_repeated_share * payload_bytes
)
SELECT run_id, flow_id, capture_id, problem
FROM problems
ORDER BY run_id, flow_id, capture_id, problem
