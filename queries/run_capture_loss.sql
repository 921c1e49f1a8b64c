-- question: How much of what each run's hosts sent is in no capture?
-- subject: runs
-- row: a run
-- inputs: runs, flows, captures, capture_loss, capture_coverage, unknown_payload
-- answer: percent_lost, flagged, problem
-- param: most_percent_lost DOUBLE = 0.1; a run is flagged beyond this percentage
-- column: run_id from flows
-- column: missed_bytes bytes; bytes of TCP flows that were sent, as their numbers prove, and not captured (flows.missed_bytes); null where no flow's are known
-- column: unacknowledged_missed_bytes from capture_loss
-- column: lost_bytes bytes; missed_bytes - unacknowledged_missed_bytes: what only the capture can have lost; null where a problem hides more
-- column: followed_bytes bytes; different payload bytes captured of the flows whose missed_bytes are known
-- column: percent_lost percent; lost_bytes of what they and followed_bytes add up to; null with lost_bytes
-- column: flows flows; TCP flows with lost bytes
-- column: dropped_packets packets; packets that the captures' own counters say were dropped, or were cut from a file (capture_loss); null without a counter
-- column: percent_dropped percent; dropped_packets of what they and the records of the captures with counters add up to
-- column: flagged; whether percent_lost or percent_dropped is beyond most_percent_lost; null where nothing is known, or a problem hides more
-- column: problem; that of capture_coverage, else of unknown_payload; null where there is none
-- Zeek's capture_loss.log has the percentage of acknowledgements of data that was not captured (its
-- scripts/policy/misc/capture-loss.zeek). Bytes are counted here, which do not depend on how many segments an
-- acknowledgement covers. What a host sent that no capture covers leaves no number: how much that is, is not known.
WITH lost AS (
    SELECT run_id, sum(missed_bytes)::BIGINT AS missed_bytes,
           sum(unacknowledged_missed_bytes)::BIGINT AS unacknowledged_missed_bytes,
           sum(payload_bytes - retransmitted_bytes) FILTER (missed_bytes IS NOT NULL)::BIGINT AS followed_bytes,
           count(*) FILTER (missed_bytes > unacknowledged_missed_bytes) AS flows
    FROM flows
    GROUP BY run_id
), dropped AS (
    SELECT run_id, sum(coalesce(l.kernel_dropped_packets, 0) + coalesce(l.interface_dropped_packets, 0) + coalesce(cut_packets, 0))
                   FILTER (l.counter_source IS NOT NULL)::BIGINT AS dropped_packets,
           sum(records) FILTER (l.counter_source IS NOT NULL)::BIGINT AS counted_records
    FROM captures
    JOIN capture_loss() AS l USING (run_id, capture_id)
    GROUP BY run_id
), problems AS (
    SELECT run_id, coalesce(c.problem, u.problem) AS problem
    FROM capture_coverage AS c
    LEFT JOIN unknown_payload AS u USING (run_id)
)
SELECT run_id, missed_bytes, unacknowledged_missed_bytes,
       CASE WHEN problem IS NULL THEN missed_bytes - unacknowledged_missed_bytes END AS lost_bytes,
       followed_bytes, coalesce(100 * lost_bytes / nullif(lost_bytes + followed_bytes, 0), CASE WHEN lost_bytes = 0 THEN 0 END)::DOUBLE
           AS percent_lost,
       CASE WHEN missed_bytes IS NOT NULL THEN flows END AS flows, dropped_packets,
       coalesce(100 * dropped_packets / nullif(dropped_packets + counted_records, 0), CASE WHEN dropped_packets = 0 THEN 0 END)::DOUBLE
           AS percent_dropped,
       CASE WHEN percent_lost > $most_percent_lost OR percent_dropped > $most_percent_lost THEN true
            WHEN problem IS NULL AND (percent_lost IS NOT NULL OR percent_dropped IS NOT NULL) THEN false
       END AS flagged, problem
FROM runs
LEFT JOIN lost USING (run_id)
LEFT JOIN dropped USING (run_id)
LEFT JOIN problems USING (run_id)
ORDER BY run_id
