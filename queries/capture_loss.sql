-- question: How much does each capture file miss of the connections in it, and what do its own counters say?
-- subject: runs
-- row: a capture file
-- inputs: captures
-- answer: percent_lost, flagged
-- param: most_percent_lost DOUBLE = 0.1; a capture is flagged beyond this percentage
-- column: run_id
-- column: capture_id
-- column: missed_bytes bytes; bytes of TCP flows that were sent, as their numbers prove, and are not in this file
-- column: unacknowledged_missed_bytes bytes; part of them that the network may have lost
-- column: followed_bytes bytes; different payload bytes of these flows in this file
-- column: percent_lost percent; missed_bytes less those not acknowledged, of what they and followed_bytes add up to; null where nothing is known
-- column: kernel_dropped_packets packets; packets that the operating system dropped, as the capturing program counted
-- column: interface_dropped_packets packets; packets that the interface dropped, as the capturing program counted
-- column: cut_packets packets; packets that the capturing program counted and that are in no file: it was cut or filtered afterwards; null without a count
-- column: percent_dropped percent; all three of what they and the file's records add up to; null without a counter
-- column: counter_source; where the counters are from; null without any
-- column: flagged; whether percent_lost or percent_dropped is beyond most_percent_lost; null where both are null
-- Copies that do not count are included: what another file has of these bytes is in flows (run_capture_loss,
-- flow_capture_loss). The percentage is computed as in run_capture_loss. Of files that one program wrote the first one has
-- the count (docs/packets.md): it is compared with the records of all files of the host, or of an unknown one, that have
-- no count of their own.
WITH percentages AS (
    SELECT *, missed_bytes - unacknowledged_missed_bytes AS lost,
           records + coalesce(sum(records) FILTER (delivered_packets IS NULL) OVER (PARTITION BY run_id, vantage_ip), 0)
               + coalesce(sum(records) FILTER (delivered_packets IS NULL AND vantage_ip IS NULL) OVER (PARTITION BY run_id), 0)
               AS records_of_count,
           CASE WHEN delivered_packets IS NOT NULL THEN greatest(delivered_packets - records_of_count, 0) END::BIGINT
               AS cut_packets,  -- greatest() ignores nulls
           coalesce(kernel_dropped_packets, 0) + coalesce(interface_dropped_packets, 0) + coalesce(cut_packets, 0) AS dropped
    FROM captures
)
SELECT run_id, capture_id, missed_bytes, unacknowledged_missed_bytes, followed_bytes,
       (100 * lost / nullif(lost + followed_bytes, 0))::DOUBLE AS percent_lost,
       kernel_dropped_packets, interface_dropped_packets, cut_packets,
       CASE WHEN counter_source IS NOT NULL
            THEN coalesce(100 * dropped / nullif(dropped + records, 0), 0) END::DOUBLE AS percent_dropped,
       counter_source,
       CASE WHEN percent_lost IS NOT NULL OR percent_dropped IS NOT NULL
            THEN coalesce(percent_lost > $most_percent_lost, false) OR coalesce(percent_dropped > $most_percent_lost, false)
       END AS flagged
FROM percentages
ORDER BY run_id, capture_id
