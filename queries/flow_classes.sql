-- question: Which flows of a run are small, medium and large?
-- subject: volume
-- row: a run and a flow
-- inputs: five_tuples
-- answer: flow_id, src_ip, dst_ip, size_class
-- param: small_below DOUBLE = NULL; flows below this many wire bytes are small; NULL: found from the data
-- param: large_from DOUBLE = NULL; flows from this many wire bytes on are large; NULL: found from the data
-- param: least_gap DOUBLE = 2; a gap separates classes where the next size is at least this many times the one before
-- figure: farhat section 3 (small, medium and large flows)
-- column: run_id
-- column: flow_id
-- column: src_ip
-- column: dst_ip
-- column: protocol
-- column: src_port
-- column: dst_port
-- column: encapsulation_id
-- column: roce_dest_qp
-- column: packets packets; packets of the flow
-- column: wire_bytes
-- column: payload_bytes
-- column: size_class; small, medium or large, by wire_bytes
-- column: small_below_bytes bytes; flows below are small
-- column: large_from_bytes bytes; flows from here on are large
-- column: thresholds; how the two are known: found (two gaps), one gap, no gap, given, small given or large given
-- A flow is a five-tuple (five_tuples). The sizes of a run, in order, have gaps; the two gaps with the greatest ratio
-- of the next size to the one before separate the classes (of equal gaps the one at the larger sizes). Where only one
-- gap is wide enough there are no medium flows; where none is, all flows are large. Large is tested before small.
WITH sizes AS (
    SELECT DISTINCT run_id, wire_bytes AS size
    FROM five_tuples
), gaps AS (  -- each size but a run's smallest, and how much larger it is than the one before
    SELECT run_id, size, lag(size) OVER (PARTITION BY run_id ORDER BY size) AS smaller,
           size / greatest(smaller, 1) AS gap
    FROM sizes
    QUALIFY smaller IS NOT NULL AND gap >= $least_gap
), ranked AS (
    SELECT *, row_number() OVER (PARTITION BY run_id ORDER BY gap DESC, size DESC) AS gap_place
    FROM gaps
), found AS (
    SELECT run_id, count(*) AS gaps, min(size) AS small_below_found, max(size) AS large_from_found
    FROM ranked
    WHERE gap_place <= 2
    GROUP BY run_id
), least_sizes AS (
    SELECT run_id, min(size) AS least
    FROM sizes
    GROUP BY run_id
), limits AS (
    SELECT run_id,
           coalesce($small_below, small_below_found, least)::DOUBLE AS small_below_bytes,
           coalesce($large_from, large_from_found, least)::DOUBLE AS large_from_bytes,
           CASE WHEN $small_below IS NOT NULL AND $large_from IS NOT NULL THEN 'given'
                WHEN $small_below IS NOT NULL THEN 'small given'
                WHEN $large_from IS NOT NULL THEN 'large given'
                WHEN gaps = 2 THEN 'found'
                WHEN gaps = 1 THEN 'one gap'
                ELSE 'no gap' END AS thresholds
    FROM least_sizes
    LEFT JOIN found USING (run_id)
)
SELECT run_id, flow_id, src_ip, dst_ip, protocol, src_port, dst_port, encapsulation_id, roce_dest_qp,
       packets, wire_bytes, payload_bytes,
       CASE WHEN wire_bytes >= large_from_bytes THEN 'large'
            WHEN wire_bytes < small_below_bytes THEN 'small'
            ELSE 'medium' END AS size_class,
       small_below_bytes, large_from_bytes, thresholds
FROM five_tuples
JOIN limits USING (run_id)
ORDER BY run_id, wire_bytes DESC, flow_id
