-- The connections of a five-tuple, through all files of a series: the first row of a file continues the last of the file
-- before, unless it has a SYN, and that one another sequence number, or the file before a FIN or RST.
-- One row: a row of ranked that counts, with the number of its connection.
CREATE TEMP TABLE connections AS
WITH followed AS (
    SELECT *, lag(file) OVER key AS file_before, lag(initial_sequence) OVER key AS sequence_before,
           lag(fin_packets + rst_packets > 0) OVER key AS ended_before, lag(missed_bytes) OVER key AS missed_there,
           lag(next_position) OVER key AS position_before
    FROM ranked WHERE counts
    WINDOW key AS (
        PARTITION BY src_ip, dst_ip, protocol, src_port, dst_port, encapsulation_id, roce_dest_qp ORDER BY file_order, flow
    )
)
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
);
