-- The trains of all files (capture_facts.TRAINS) in the order of flows and of their streams: what messages are made of.
-- One row: a train of a flow that counts, with the columns of pcap/compiled/trains.py.
-- Streams of RoCEv2 are in the order of time, their packet numbers have 24 bits. Those of TCP are in the order of positions: bytes
-- since the first that is in any file. A file's numbers go on from those of the file before by the nearest distance, modulo 2^32.
WITH counted AS (
    SELECT flow_id, file, file_order, opcode, trains.* EXCLUDE (file, flow)
    FROM trains JOIN flow_map USING (file, flow) JOIN files USING (file)
), flow_sizes AS (
    SELECT flow_id, protocol = 6 AS is_tcp, max(largest_bytes) AS full_bytes, bool_or(marks & 2 = 2) AS has_psh,
           CASE WHEN any_value(segment) >= 1 THEN full_bytes % any_value(segment) = 0
                ELSE full_bytes >= $least_segment END AS is_limited
    FROM counted JOIN run_flows USING (flow_id) GROUP BY flow_id, protocol
), spans AS (
    SELECT flow_id, file, file_order, min("start") AS begins, max("start" + bytes) AS ends FROM counted GROUP BY ALL
), followed AS (
    SELECT *, lag(ends) OVER flow AS ended FROM spans WINDOW flow AS (PARTITION BY flow_id ORDER BY file_order)
), moved AS (
    SELECT flow_id, file,
           sum(CASE WHEN ended IS NULL THEN -begins
                    ELSE ended - begins + (begins % 4294967296 - ended % 4294967296 + 6442450944) % 4294967296 - 2147483648
               END) OVER (PARTITION BY flow_id ORDER BY file_order)::BIGINT AS shift
    FROM followed
)
SELECT flow_id, is_tcp::BIGINT AS is_tcp, full_bytes, is_limited::BIGINT AS is_limited, has_psh::BIGINT AS has_psh,
       coalesce(opcode, -1) AS opcode, CASE WHEN is_tcp THEN "start" + shift ELSE 0 END AS place,
       first_ns, last_ns, "start", bytes, packets, largest_bytes, largest_ns, largest_before, last_bytes, marks
FROM counted JOIN flow_sizes USING (flow_id) JOIN moved USING (flow_id, file)
ORDER BY flow_id, CASE WHEN is_tcp THEN place ELSE first_ns END, first_ns, "start", file_order;
