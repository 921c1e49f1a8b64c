-- The flow with the ends exchanged, of several connections the one that begins nearest, and only where that holds for
-- both. flow_id follows first_seen_ns: the nearest is the next one before or after.
-- One row: a flow that has one.
CREATE TEMP TABLE reversed AS
WITH before AS (
    SELECT f.flow_id, r.flow_id AS other, f.first_seen_ns - r.first_seen_ns AS gap
    FROM merged AS f ASOF JOIN merged AS r
      ON f.src_ip = r.dst_ip AND f.dst_ip = r.src_ip AND f.protocol = r.protocol AND f.src_port = r.dst_port
     AND f.dst_port = r.src_port AND f.flow_id > r.flow_id
), after AS (
    SELECT f.flow_id, r.flow_id AS other, r.first_seen_ns - f.first_seen_ns AS gap
    FROM merged AS f ASOF JOIN merged AS r
      ON f.src_ip = r.dst_ip AND f.dst_ip = r.src_ip AND f.protocol = r.protocol AND f.src_port = r.dst_port
     AND f.dst_port = r.src_port AND f.flow_id < r.flow_id
), nearest AS (
    SELECT flow_id, arg_min(other, (gap, other)) AS other
    FROM (FROM before UNION ALL FROM after) GROUP BY flow_id
)
SELECT a.flow_id, a.other AS reverse_flow_id
FROM nearest AS a JOIN nearest AS b ON a.other = b.flow_id AND b.other = a.flow_id;
