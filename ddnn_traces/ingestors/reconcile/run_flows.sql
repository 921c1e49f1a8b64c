-- The rows of the table flows: initiator, reverse flow and bytes on the cable.
-- One row: a flow; segment: payload of a full TCP segment, null where it is not known. An end with more other ends is a
-- server's (shared_port). Where both directions begin at the same time, and nothing else tells, the initiator is not known:
-- flow_id has the order of the addresses then.
CREATE TEMP TABLE run_flows AS
WITH sides AS (
    SELECT protocol, src_ip AS ip, src_port AS port, dst_ip AS other_ip, dst_port AS other_port FROM merged
    UNION
    SELECT protocol, dst_ip, dst_port, src_ip, src_port FROM merged
), ends AS (
    SELECT protocol, ip, port, count(*) AS others FROM sides WHERE port > 0 GROUP BY ALL
), evidence AS (
    SELECT f.*, v.reverse_flow_id, least(f.mss, r.mss) AS least_mss,
           CASE WHEN f.opened + f.accepted > 0 THEN 'syn'
                WHEN r.opened + r.accepted > 0 THEN 'reverse_syn'
                WHEN s.others <> d.others THEN 'shared_port'
                WHEN (f.src_port < 1024) <> (f.dst_port < 1024) THEN 'port'
                WHEN (f.src_port < 32768) <> (f.dst_port < 32768) THEN 'port'
                WHEN r.flow_id IS NULL THEN 'only_direction'
                WHEN f.first_seen_ns <> r.first_seen_ns THEN 'first_packet'
           END AS initiator_source,
           CASE initiator_source
                WHEN 'syn' THEN f.opened > 0
                WHEN 'reverse_syn' THEN r.opened = 0
                WHEN 'shared_port' THEN s.others < d.others
                WHEN 'port' THEN f.src_port > f.dst_port
                WHEN 'first_packet' THEN f.first_seen_ns < r.first_seen_ns
                WHEN 'only_direction' THEN true
           END AS is_initiator
    FROM merged AS f
    LEFT JOIN reversed AS v USING (flow_id)
    LEFT JOIN merged AS r ON r.flow_id = v.reverse_flow_id
    LEFT JOIN ends AS s ON (s.protocol, s.ip, s.port) = (f.protocol, f.src_ip, f.src_port)
    LEFT JOIN ends AS d ON (d.protocol, d.ip, d.port) = (f.protocol, f.dst_ip, f.dst_port)
), sized AS (
    SELECT *,
           -- headers of most packets: the mean, but headers are of 4 bytes, so that a SYN's longer options do not count
           round((ip_bytes - payload_bytes) / packets / 4) * 4 AS ip_header_bytes,
           (wire_bytes - ip_bytes) / packets + ip_header_bytes AS header_bytes,
           -- TCP options: what they have beyond IP's and TCP's fixed ones
           least_mss - ip_header_bytes + CASE WHEN contains(src_ip, ':') THEN 60 ELSE 40 END AS segment,
           CASE WHEN least_mss > 1500 THEN huge_packets ELSE large_packets END AS super_packets,
           CASE WHEN least_mss > 1500 THEN huge_payload_bytes ELSE large_payload_bytes END AS super_payload
    FROM evidence
)
SELECT * EXCLUDE (ip_header_bytes, header_bytes, super_packets, super_payload, least_mss),
       nullif(largest_window, 0) << window_scale AS receive_window_bytes,
       CASE WHEN protocol <> 6 OR super_packets = 0 THEN wire_bytes
            WHEN segment >= 1 THEN
            (wire_bytes + greatest(0, ceil(super_payload / segment) - super_packets) * header_bytes)::BIGINT
       END AS cable_bytes_estimate
FROM sized;
