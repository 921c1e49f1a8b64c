-- ranked and connections where each five-tuple has one row that the filter includes: it counts, and is a connection.
CREATE TEMP TABLE connections AS
SELECT copies.* EXCLUDE (gaps), missed_bytes, unacknowledged_missed_bytes, first_position, next_position, series, file_order,
       true AS counts, NULL::BIGINT AS ahead, NULL::BIGINT AS missed_before, 0::BIGINT AS connection,
       NULL::BIGINT AS held_to
FROM copies LEFT JOIN missed USING (file, flow) JOIN files USING (file) WHERE kept;
CREATE TEMP VIEW ranked AS FROM connections;
