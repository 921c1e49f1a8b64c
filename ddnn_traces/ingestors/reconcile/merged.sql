-- Flows from all files. flow_id follows the first packet.
-- One row: a connection of a directed five-tuple, tunnel and queue pair.
-- Parameters: least, most, sums, first: the counters of ../flow_counters.py of which a flow has the least, the greatest, the
--   sum, or the first known value.
CREATE TEMP TABLE merged AS
WITH summed AS (
    SELECT src_ip, dst_ip, protocol, src_port, dst_port, encapsulation_id, roce_dest_qp, connection,
           min(COLUMNS($least)), max(COLUMNS($most)), -- a parsed file does not tell most: with it the sum is not known
           CASE WHEN count(COLUMNS($sums)) = count(*) THEN sum(COLUMNS($sums)) END::BIGINT,
           arg_min(COLUMNS($first), (file_order, flow)),  -- of those that are not null
           CASE WHEN bool_and(missed_bytes IS NOT NULL)
                THEN sum(missed_bytes + greatest(coalesce(ahead, 0), 0)
                         - least(greatest(coalesce(-ahead, 0), 0), coalesce(missed_before, 0))) END::BIGINT AS missed_bytes,
           CASE WHEN bool_and(unacknowledged_missed_bytes IS NOT NULL) THEN sum(unacknowledged_missed_bytes) END::BIGINT AS unacknowledged_missed_bytes
    FROM connections GROUP BY ALL
)
SELECT * REPLACE (least(missed_bytes, unacknowledged_missed_bytes) AS unacknowledged_missed_bytes),
       row_number() OVER (
           ORDER BY first_seen_ns, src_ip, dst_ip, protocol, src_port, dst_port, encapsulation_id, roce_dest_qp, connection
       ) - 1 AS flow_id
FROM summed;
