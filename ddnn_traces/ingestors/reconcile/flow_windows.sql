-- The rows of the table flow_windows, where time stamps are so far out of order that run_tables.py cannot merge them.
-- One row: a flow and a window. Parameters: window_ns; no_step: the least step of a cell that is not one of NOTES; those of
-- ../../pcap/flow_counters.py by their names without _packets.
WITH summed AS (
SELECT flow_id, "window" * $window_ns AS window_start_ns, $window_ns AS window_ns,
       coalesce(sum(packets) FILTER (step >= $no_step), 0)::BIGINT AS packets,
       coalesce(sum(wire_bytes) FILTER (step >= $no_step), 0)::BIGINT AS wire_bytes,
       sum(payload_bytes)::BIGINT AS payload_bytes, sum(retransmitted_bytes)::BIGINT AS retransmitted_bytes,
       coalesce(sum(packets) FILTER (step = $ce), 0)::BIGINT AS ce_packets,
       coalesce(sum(packets) FILTER (step = $ece), 0)::BIGINT AS ece_packets,
       coalesce(sum(packets) FILTER (step = $nak), 0)::BIGINT AS nak_packets,
       coalesce(sum(packets) FILTER (step = $rnr), 0)::BIGINT AS rnr_packets,
       coalesce(sum(packets) FILTER (step = $cnp), 0)::BIGINT AS cnp_packets,
       coalesce(sum(packets) FILTER (step = $psn_repeated), 0)::BIGINT AS psn_repeated_packets,
       coalesce(sum(wire_bytes) FILTER (step = $psn_repeated), 0)::BIGINT AS psn_repeated_bytes
FROM cells JOIN flow_map USING (file, flow) GROUP BY ALL
)
-- a parsed file tells no payload, and none of the others
SELECT * EXCLUDE (ce_packets, ece_packets, nak_packets, rnr_packets, cnp_packets, psn_repeated_packets, psn_repeated_bytes),
       CASE WHEN payload_bytes IS NOT NULL THEN COLUMNS(['ce_packets', 'ece_packets', 'nak_packets', 'rnr_packets',
            'cnp_packets', 'psn_repeated_packets', 'psn_repeated_bytes']) END
FROM summed;
