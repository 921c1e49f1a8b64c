-- The connections of a five-tuple, through all files of a series: the first row of a file continues the last of the file
-- before, unless it has a SYN, and that one another sequence number, or the file before a FIN or RST.
-- One row: a row of ranked that counts, with the number of its connection. What is sent again in a file while the file before
-- has it counts as retransmitted, and numbers that the file before has are not missed. held_to: the number up to which the
-- file before has all of the connection; null where it may lack some, or where this file has none of them.
CREATE TEMP TABLE connections AS
WITH followed AS (
    SELECT *, lag(file) OVER key AS file_before, lag(initial_sequence) OVER key AS sequence_before,
           lag(fin_packets + rst_packets > 0) OVER key AS ended_before, lag(missed_bytes) OVER key AS missed_there,
           lag(next_position) OVER key AS position_before
    FROM ranked WHERE counts
    WINDOW key AS (
        PARTITION BY src_ip, dst_ip, protocol, src_port, dst_port, encapsulation_id, roce_dest_qp ORDER BY file_order, flow
    )
), numbered AS MATERIALIZED (
    SELECT * EXCLUDE (file_before, sequence_before, ended_before, missed_there, position_before),
           -- numbers between the same connection's row of the file before and this one: above 0 they are in no file, below 0
           -- in both; null without such a row
           CASE WHEN file_before <> file AND NOT ended_before AND (initial_sequence IS NULL OR initial_sequence = sequence_before)
                THEN (first_position % 4294967296 - position_before % 4294967296 + 6442450944) % 4294967296 - 2147483648
           END AS ahead,
           CASE WHEN ahead IS NOT NULL THEN missed_there END AS missed_before,
           sum(CASE WHEN protocol <> 6 OR file_before IS NULL THEN 0
                    WHEN file_before = file THEN 1
                    WHEN initial_sequence IS NULL OR (initial_sequence = sequence_before AND NOT ended_before) THEN 0
                    ELSE 1 END)
           OVER key::BIGINT AS connection
    FROM followed
    WINDOW key AS (
        PARTITION BY src_ip, dst_ip, protocol, src_port, dst_port, encapsulation_id, roce_dest_qp ORDER BY file_order, flow
    )
), held AS (
    SELECT file, flow, n.first_position - ahead AS held_to,
           coalesce(list_sum(list_transform(
               gaps, lambda gap: greatest(least(gap[2], n.first_position - ahead) - gap[1], 0))), 0)::BIGINT AS held_gaps,
           -ahead - held_gaps AS again
    FROM numbered AS n JOIN copies USING (file, flow)
    -- a SYN has a number, too; more than the file's payload is another connection, whose SYN is in no file
    WHERE ahead < 0 AND missed_before = 0 AND n.initial_sequence IS NULL
      AND again <= n.payload_bytes - n.retransmitted_bytes
)
SELECT n.* REPLACE (missed_bytes - coalesce(held_gaps, 0) AS missed_bytes,
                    retransmitted_bytes + coalesce(again, 0) AS retransmitted_bytes,
                    retransmitted_packets
                        + coalesce(ceil(again / nullif(largest_segment_bytes, 0)), 0)::BIGINT AS retransmitted_packets),
       held_to
FROM numbered AS n LEFT JOIN held USING (file, flow);
