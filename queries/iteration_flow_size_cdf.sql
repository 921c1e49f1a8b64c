-- question: How much does a flow send in an iteration?
-- subject: volume
-- row: a run and a size that one of its flows had in one of its iterations
-- inputs: flow_connections, step_flows, flow_classes, data_flows
-- param: flow_kind VARCHAR = data; data (as in data_flows), small, medium or large (as in flow_classes) flows; NULL: all flows
-- param: points BIGINT > 0 = NULL; at most this many rows per run (2 or more), evenly over the sizes; NULL: every size
-- figure: farhat fig. 5
-- column: run_id
-- column: wire_bytes bytes; wire bytes of a flow in an iteration
-- column: flow_iterations flow iterations; pairs of a flow and a step with exactly this size
-- column: cumulative_share share; part of them with this size or less
-- A flow is a five-tuple. A size is what a flow sent in a step, counted packet by packet; a step in which a flow sent
-- nothing does not count.
WITH chosen AS (
    SELECT run_id, flow_id
    FROM flow_classes()
    LEFT JOIN (SELECT run_id, flow_id, true AS is_data FROM data_flows) USING (run_id, flow_id)
    WHERE $flow_kind IS NULL OR size_class = $flow_kind OR ($flow_kind = 'data' AND is_data)
), step_sizes AS (
    SELECT s.run_id, n.flow_id, s.step, sum(s.wire_bytes) AS size
    FROM step_flows AS s
    JOIN flow_connections AS n ON n.run_id = s.run_id AND n.connection_id = s.flow_id
    JOIN chosen AS c ON c.run_id = n.run_id AND c.flow_id = n.flow_id
    WHERE s.position = 'during'
    GROUP BY ALL
), counted AS (
    SELECT run_id, size, count(*) AS flow_iterations
    FROM step_sizes
    GROUP BY ALL
), summed AS (
    SELECT *, sum(flow_iterations) OVER (PARTITION BY run_id ORDER BY size) AS so_far,
           sum(flow_iterations) OVER (PARTITION BY run_id) AS total,
           min(size) OVER (PARTITION BY run_id) AS least,
           greatest($points, 2) - 1 AS intervals
    FROM counted
)
SELECT run_id, size::BIGINT AS wire_bytes, flow_iterations, so_far / total AS cumulative_share
FROM summed
WHERE $points IS NULL OR size = least
   OR so_far * intervals // total > (so_far - flow_iterations) * intervals // total
ORDER BY run_id, wire_bytes
