-- question: How many flows of a run are small, medium and large, and what do they carry?
-- subject: volume
-- row: a run that has a flow and a class
-- inputs: flow_classes
-- param: small_below DOUBLE = NULL; flows below this many wire bytes are small; NULL: found from the data
-- param: large_from DOUBLE = NULL; flows from this many wire bytes on are large; NULL: found from the data
-- param: least_gap DOUBLE = 2; a gap separates classes where the next size is at least this many times the one before
-- figure: farhat section 3 (small, medium and large flows)
-- column: run_id
-- column: size_class; small, medium or large
-- column: place; 1 small, 2 medium, 3 large
-- column: flows flows; five-tuples in the class
-- column: flows_with_payload flows; those of them that carry payload; null where that of a flow is not known
-- column: wire_bytes bytes; wire bytes of the class
-- column: payload_bytes bytes; payload of the class; null in the same way
-- column: share_of_wire_bytes share; part of the run's wire bytes
-- column: least_bytes bytes; wire bytes of the smallest flow of the class; null for a class without flows
-- column: most_bytes bytes; wire bytes of the largest one
-- column: small_below_bytes
-- column: large_from_bytes
-- column: thresholds; how the two are known, as in flow_classes
WITH classified AS (
    FROM flow_classes(small_below := $small_below, large_from := $large_from, least_gap := $least_gap)
), classes AS (
    SELECT DISTINCT run_id, small_below_bytes, large_from_bytes, thresholds,
           unnest(['small', 'medium', 'large']) AS size_class, unnest([1, 2, 3]) AS place
    FROM classified
), counts AS (
    SELECT run_id, size_class, count(*) AS flows, CASE WHEN count(payload_bytes) = count(*) THEN count(*) FILTER (payload_bytes > 0) END AS flows_with_payload,
           sum(wire_bytes) AS wire_bytes,
           CASE WHEN count(payload_bytes) = count(*) THEN sum(payload_bytes) END AS payload_bytes,
           min(wire_bytes) AS least_bytes, max(wire_bytes) AS most_bytes
    FROM classified
    GROUP BY ALL
)
SELECT run_id, size_class, place::BIGINT AS place, coalesce(flows, 0) AS flows,
       CASE WHEN counts.flows IS NULL THEN 0 ELSE flows_with_payload END AS flows_with_payload,
       coalesce(wire_bytes, 0)::BIGINT AS wire_bytes,
       CASE WHEN counts.flows IS NULL THEN 0 ELSE payload_bytes END::BIGINT AS payload_bytes,
       coalesce(wire_bytes, 0) / sum(wire_bytes) OVER (PARTITION BY run_id) AS share_of_wire_bytes,
       least_bytes, most_bytes, small_below_bytes, large_from_bytes, thresholds
FROM classes
LEFT JOIN counts USING (run_id, size_class)
ORDER BY run_id, place
