-- question: Which flows are not the sum of their messages, or have messages that contradict each other?
-- row: a flow whose messages do not add up to its new payload, reach beyond its times, or do not follow each other
-- inputs: flows, messages
-- column: run_id
-- column: flow_id from flows
-- column: flow_bytes bytes; payload of the flow without what was retransmitted; null where flows has no such flow
-- column: message_bytes bytes; sum of its messages; null where it has none
-- column: overlapping_messages; messages that begin before the end of the one before in the stream
-- column: messages_beyond; messages that begin before the flow's first packet, or end after its last; a simulated one ends with its last byte
WITH ordered AS (
    SELECT *, stream_offset < lag(stream_offset + bytes) OVER (PARTITION BY run_id, flow_id ORDER BY message) AS is_early
    FROM messages
), summed AS (
    SELECT run_id, flow_id, sum(bytes)::BIGINT AS message_bytes, count(*) FILTER (WHERE is_early) AS overlapped,
           count(*) FILTER (WHERE o.first_ns < f.first_seen_ns OR duration_ns < 0
                               OR (o.first_ns + duration_ns > f.last_seen_ns AND end_source <> 'simulated')) AS beyond
    FROM ordered AS o LEFT JOIN flows AS f USING (run_id, flow_id) GROUP BY ALL
), wanted AS (
    -- runs of older versions and generated ones have no messages; a flow of which the captures lost packets, or whose numbers
    -- are not all known, may have less than it sent; RoCE's headers are no data
    SELECT run_id, flow_id, payload_bytes - coalesce(retransmitted_bytes, 0) AS flow_bytes,
           protocol = 6 AND missed_bytes = 0 AND payload_bytes > 0 AS is_exact
    FROM flows WHERE payload_bytes IS NOT NULL AND run_id IN (SELECT run_id FROM messages)  -- null: of a parsed file
)
SELECT run_id, flow_id, flow_bytes, message_bytes, coalesce(overlapped, 0)::BIGINT AS overlapping_messages,
       coalesce(beyond, 0)::BIGINT AS messages_beyond
FROM wanted FULL JOIN summed USING (run_id, flow_id)
WHERE flow_bytes IS NULL OR message_bytes > flow_bytes OR overlapped > 0 OR beyond > 0
   OR (is_exact AND message_bytes IS DISTINCT FROM flow_bytes)
ORDER BY run_id, flow_id;
