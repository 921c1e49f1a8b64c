-- The trains of all files (capture_facts.TRAINS) in the order of flows and of their streams: what messages are made of.
-- One row: a train of a flow that counts, with the columns of pcap/compiled/trains.py.
-- Streams of RoCEv2 are in the order of time, their packet numbers have 24 bits. Those of TCP are in the order of sequence
-- numbers, which go on from file to file: what the file before has counts there.
WITH cut AS (
    SELECT t.*, m.* EXCLUDE (file, flow, largest_bytes), m.largest_bytes::BIGINT AS full_bytes,
           CASE WHEN held_to > "start" THEN least(held_to - "start", bytes) ELSE 0 END AS again,
           CASE WHEN again > 0 THEN least(ceil(again / t.largest_bytes), t.packets - 1) ELSE 0 END::BIGINT AS packets_again
    FROM trains AS t JOIN flow_map AS m USING (file, flow)
)
SELECT flow_id, (protocol = 6)::BIGINT AS is_tcp, full_bytes,
       greatest(coalesce(segment, 0), 0)::BIGINT AS unit,
       CASE WHEN unit > 0 THEN full_bytes % unit = 0 ELSE full_bytes >= $least_segment END::BIGINT AS is_limited,
       has_psh::BIGINT AS has_psh, coalesce(opcode, -1)::BIGINT AS opcode,
       CASE WHEN protocol = 6 THEN "start" + again + shift ELSE 0 END AS place,
       t.first_ns, t.last_ns, "start" + again AS "start", bytes - again AS bytes, t.packets - packets_again AS packets,
       t.largest_bytes, largest_ns, greatest(largest_before - packets_again, 0) AS largest_before, last_bytes, marks
FROM cut AS t JOIN run_flows USING (flow_id) JOIN files USING (file)
WHERE again = 0 OR again < bytes
ORDER BY flow_id, CASE WHEN protocol = 6 THEN place ELSE t.first_ns END, t.first_ns, "start", file_order;
