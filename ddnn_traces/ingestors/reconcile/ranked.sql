-- Which copies of a five-tuple's packets count (vantage.py).
-- One row: a row of copies (a connection in one file) that the filter includes, with `counts`.
-- Parameters:
--   whole_share: a copy with less than this share of the fullest copy's payload is partial (its capture lost packets) and
--     counts only where there is no better one. Payload, since offloads make packets of different sizes; packets where
--     there is no payload.
--   missed_ns: a series that begins so much later, or ends so much earlier, than the five-tuple in any file is cut, as one
--     with a file that is not complete; it is partial as soon as it holds less than another.
--   missed_share: so is one that misses more than this share of its payload, where another holds more.
-- place_packets, series_packets: packets of the five-tuple in all files of a vantage, of a series. The packets of a series
-- inside and outside of tunnels (a capture of all interfaces of the tunnel's host) are two copies. Those of two interfaces
-- (interfaces.sql) have been compared before.
-- A five-tuple with one row needs none of this, and most have one: sorting them took half of the time of all statements.
CREATE TEMP TABLE ranked AS
WITH kept_copies AS (
    SELECT copies.* EXCLUDE (gaps), missed_bytes, unacknowledged_missed_bytes, first_position, next_position
    FROM copies LEFT JOIN missed USING (file, flow) WHERE kept
), included AS (
    FROM kept_copies ANTI JOIN other_interfaces USING (file, flow)
), several AS (
    SELECT src_ip, dst_ip, protocol, src_port, dst_port FROM included GROUP BY ALL HAVING count(*) > 1
), placed AS (
    SELECT copies.*, series, file_order, cut, clock_ns, begin_ns, end_ns, coalesce(vantage_ip, '') AS place,
           encapsulation_id IS NOT NULL AS tunneled,
           CASE WHEN vantage_ip = src_ip THEN 0 WHEN vantage_ip = dst_ip THEN 1 ELSE 2 END AS distance,
           sum(packets) OVER vantage AS place_packets,
           sum(packets) OVER one_series AS series_packets,
           -- a mirror port of both directions captures each packet twice
           sum(CASE WHEN vantage_ip IS NULL THEN payload_bytes - retransmitted_bytes ELSE payload_bytes END)
               OVER one_series AS series_payload,
           sum(missed_bytes) OVER one_series AS series_missed
    FROM included AS copies SEMI JOIN several USING (src_ip, dst_ip, protocol, src_port, dst_port) JOIN files USING (file)
    WINDOW vantage AS (PARTITION BY src_ip, dst_ip, protocol, src_port, dst_port, vantage_ip),
           one_series AS (PARTITION BY src_ip, dst_ip, protocol, src_port, dst_port, vantage_ip, series, tunneled)
), timed AS (
    -- by the clock of the reference host: first and last time of the series, and of the five-tuple in any file
    SELECT placed.*, series_from_ns, series_to_ns,
           min(first_seen_ns - clock_ns) OVER five_tuple AS flow_from_ns,
           max(last_seen_ns - clock_ns) OVER five_tuple AS flow_to_ns
    FROM placed
    JOIN (SELECT coalesce(vantage_ip, '') AS place, series, min(begin_ns - clock_ns) AS series_from_ns,
                 max(end_ns - clock_ns) AS series_to_ns FROM files GROUP BY ALL) USING (place, series)
    WINDOW five_tuple AS (PARTITION BY src_ip, dst_ip, protocol, src_port, dst_port)
), compared AS (
    SELECT *, CASE WHEN cut OR series_from_ns > flow_from_ns + $missed_ns OR series_to_ns < flow_to_ns - $missed_ns
                   THEN (series_payload, series_packets) < max((series_payload, series_packets)) OVER five_tuple
                   WHEN max(series_payload) OVER five_tuple = 0
                   THEN series_packets < $whole_share * max(series_packets) FILTER (place <> '') OVER five_tuple
                   ELSE series_payload < $whole_share * max(series_payload) OVER five_tuple
              END IS TRUE
              OR (series_missed > $missed_share * (series_payload + series_missed)
                  AND series_payload < max(series_payload) OVER five_tuple) IS TRUE AS is_partial
    FROM timed
    WINDOW five_tuple AS (PARTITION BY src_ip, dst_ip, protocol, src_port, dst_port)
), best AS (
    SELECT *, first_value((place, series, tunneled))
              OVER (PARTITION BY src_ip, dst_ip, protocol, src_port, dst_port
                    ORDER BY is_partial, distance, place_packets DESC, place, series_packets DESC, series, tunneled)
              AS best
    FROM compared
)
SELECT * EXCLUDE (cut, clock_ns, begin_ns, end_ns, series_from_ns, series_to_ns, flow_from_ns, flow_to_ns, place,
                  distance, place_packets, series_packets, series_payload, series_missed, is_partial, tunneled, best),
       (place, series, tunneled) = best AS counts
FROM best
UNION ALL BY NAME
SELECT copies.*, series, file_order, true AS counts
FROM included AS copies ANTI JOIN several USING (src_ip, dst_ip, protocol, src_port, dst_port) JOIN files USING (file)
UNION ALL BY NAME
SELECT copies.*, series, file_order, false AS counts
FROM kept_copies AS copies SEMI JOIN other_interfaces USING (file, flow) JOIN files USING (file);
