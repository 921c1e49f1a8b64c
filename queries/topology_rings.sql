-- question: Do the pairs that carry a run's exchange form rings of rings?
-- subject: topology
-- row: a run and a level of topology_edges on which every host sends to one or two others and receives from as many
-- inputs: topology_edges
-- column: run_id
-- column: level; level of topology_edges
-- column: is_led; whether every group of hosts is a ring, and one host of each, its leader, is in a ring of leaders
-- column: is_grid; whether every host is in the ring of its group and in one across the groups, all of one size each
-- column: groups groups; number of groups; null where is_led is false
-- Groups are of equal size but one, which may be a leader alone. In a grid, of the two hosts that a host sends to, the
-- one that gets more is in its group.
WITH RECURSIVE edges AS MATERIALIZED (
    SELECT run_id, level, src_ip AS x, dst_ip AS y, payload_bytes AS bytes
    FROM topology_edges
), sent AS (
    SELECT run_id, level, x, count(*) AS outs FROM edges GROUP BY ALL
), received AS (
    SELECT run_id, level, y AS x, count(*) AS ins FROM edges GROUP BY ALL
), nodes AS (
    SELECT run_id, level, x, coalesce(outs, 0) AS outs, coalesce(ins, 0) AS ins
    FROM sent
    FULL JOIN received USING (run_id, level, x)
), rings_of_rings AS (
    SELECT run_id, level, count(*) AS n, count(*) FILTER (outs = 2) AS forks
    FROM nodes
    GROUP BY ALL
    HAVING bool_and(outs = ins) AND max(outs) = 2 AND count(*) >= 4
), walks AS (  -- from each host with two to send to, along those with one, to the next with two
    SELECT e.run_id, e.level, e.x AS leader, e.y AS here, 1 AS length
    FROM edges AS e
    JOIN rings_of_rings USING (run_id, level)
    JOIN nodes USING (run_id, level, x)
    WHERE outs = 2
    UNION ALL
    SELECT w.run_id, w.level, w.leader, e.y, w.length + 1
    FROM walks AS w
    JOIN nodes AS n ON n.run_id = w.run_id AND n.level = w.level AND n.x = w.here AND n.outs = 1
    JOIN edges AS e ON e.run_id = w.run_id AND e.level = w.level AND e.x = w.here
    WHERE w.length < 4096
), arrivals AS (
    SELECT w.run_id, w.level, leader, here, length
    FROM walks AS w
    JOIN nodes AS n ON n.run_id = w.run_id AND n.level = w.level AND n.x = w.here AND n.outs = 2
), leaders AS (
    SELECT run_id, level, leader, max(length) FILTER (here = leader) AS group_size, any_value(here) FILTER (here <> leader) AS next,
           max(length) FILTER (here <> leader) AS next_length, count(*) FILTER (here = leader) AS own_rings
    FROM arrivals
    GROUP BY ALL
), leader_tour AS (
    SELECT run_id, level, min(leader) AS first, min(leader) AS leader FROM leaders GROUP BY ALL
    UNION
    SELECT t.run_id, t.level, t.first, next FROM leader_tour AS t JOIN leaders AS l USING (run_id, level, leader)
), tours AS (
    SELECT run_id, level, count(*) AS toured FROM leader_tour GROUP BY ALL
), led_rings AS (
    SELECT run_id, level, count(*) + count(*) FILTER (next_length = 2) AS groups,
           bool_and(own_rings = 1 AND next_length <= 2) AND max(toured) = count(*) AND count(*) >= 2
           AND count(*) FILTER (next_length = 2) <= 1 AND count(DISTINCT next) = count(*)
           AND sum(group_size) + count(*) FILTER (next_length = 2) = any_value(n)
           AND count(*) FILTER (group_size <> (SELECT mode(o.group_size) FROM leaders AS o
                                               WHERE o.run_id = leaders.run_id AND o.level = leaders.level)) <= 1 AS is_led
    FROM leaders
    JOIN tours USING (run_id, level)
    JOIN rings_of_rings USING (run_id, level)
    GROUP BY run_id, level
), grid_edges AS (  -- of the two, the heavier is inside the group
    SELECT run_id, level, x, y, row_number() OVER (PARTITION BY run_id, level, x ORDER BY bytes DESC, y) AS way
    FROM edges
    JOIN rings_of_rings USING (run_id, level)
    WHERE forks = n
), grid_walks AS (
    SELECT run_id, level, way, x, y AS here, 1 AS length FROM grid_edges
    UNION ALL
    SELECT w.run_id, w.level, w.way, w.x, e.y, length + 1
    FROM grid_walks AS w
    JOIN grid_edges AS e ON e.run_id = w.run_id AND e.level = w.level AND e.way = w.way AND e.x = w.here
    WHERE w.here <> w.x AND length < 4096
), grid_rings AS (
    SELECT run_id, level, way, min(length) AS shortest, max(length) AS longest
    FROM grid_walks
    WHERE here = x
    GROUP BY ALL
), grids AS (
    SELECT run_id, level, bool_and(shortest = longest) AND product(longest) = any_value(n) AS is_grid
    FROM grid_rings
    JOIN rings_of_rings USING (run_id, level)
    GROUP BY ALL
)
SELECT run_id, level, coalesce(is_led, false) AS is_led, coalesce(is_grid, false) AS is_grid,
       CASE WHEN is_led THEN groups END AS groups
FROM rings_of_rings
LEFT JOIN led_rings USING (run_id, level)
LEFT JOIN grids USING (run_id, level)
ORDER BY run_id, level
