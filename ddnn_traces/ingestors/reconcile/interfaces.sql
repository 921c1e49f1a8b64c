-- Rows that are copies of what another interface of the same host has, where the link type tells interfaces (SLL2): tcpdump
-- -i any on a host with a bridge has each packet at the port in, at the bridge and at the port out.
-- One row: a row of copies that does not count, since the same packets count at another interface.
-- Parameters:
--   pass_ns: longer than a host takes to pass a packet on. Copies of flows as short as that may follow each other.
--   whole_share: as of ranked.sql, of the payload of an island.
-- An island is a time in which a five-tuple has packets without a pause on one interface or several. There the interface counts
-- that is whole and has most in all files. An interface that takes over from another makes another island: both count.
CREATE TEMP TABLE other_interfaces AS
WITH told AS (
    SELECT file, flow, src_ip, dst_ip, protocol, src_port, dst_port, vantage_ip, series, encapsulation_id IS NOT NULL AS tunneled,
           interface, packets, payload_bytes, first_seen_ns, last_seen_ns
    FROM copies JOIN files USING (file) WHERE kept AND interface IS NOT NULL
), five_tuples AS (
    SELECT *, row_number() OVER (ORDER BY file, flow) AS row_number,
           min(interface) OVER key <> max(interface) OVER key AS has_several,
           CASE WHEN last_seen_ns - first_seen_ns <= $pass_ns THEN $pass_ns ELSE 0 END AS slack_ns
    FROM told
    WINDOW key AS (PARTITION BY src_ip, dst_ip, protocol, src_port, dst_port, vantage_ip, series, tunneled)
), pauses AS (
    SELECT *, coalesce(first_seen_ns - slack_ns > max(last_seen_ns) OVER before, false) AS is_begin
    FROM five_tuples WHERE has_several
    WINDOW before AS (PARTITION BY src_ip, dst_ip, protocol, src_port, dst_port, vantage_ip, series, tunneled
                      ORDER BY first_seen_ns, row_number ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
), islands AS (
    SELECT *, sum(is_begin::INTEGER) OVER key AS island
    FROM pauses
    WINDOW key AS (PARTITION BY src_ip, dst_ip, protocol, src_port, dst_port, vantage_ip, series, tunneled
                   ORDER BY first_seen_ns, row_number)
), summed AS (
    SELECT *, sum(payload_bytes) OVER one_interface AS all_payload, sum(packets) OVER one_interface AS all_packets,
           sum(payload_bytes) OVER here AS payload_here
    FROM islands
    WINDOW one_interface AS (PARTITION BY src_ip, dst_ip, protocol, src_port, dst_port, vantage_ip, series, tunneled, interface),
           here AS (PARTITION BY src_ip, dst_ip, protocol, src_port, dst_port, vantage_ip, series, tunneled, island, interface)
), compared AS (
    SELECT *, payload_here < $whole_share * max(payload_here) OVER one_island AS is_partial
    FROM summed
    WINDOW one_island AS (PARTITION BY src_ip, dst_ip, protocol, src_port, dst_port, vantage_ip, series, tunneled, island)
)
SELECT file, flow
FROM compared
QUALIFY interface <> first_value(interface) OVER (
    PARTITION BY src_ip, dst_ip, protocol, src_port, dst_port, vantage_ip, series, tunneled, island
    ORDER BY is_partial, all_payload DESC, all_packets DESC, interface);
