-- question: Which host is the root of a tree: towards which end do its links carry the data of an exchange first?
-- subject: topology
-- row: a run with the shape of a tree, a star or a tree of stars
-- inputs: topology_matches, topology_edges, collective_laws, pair_payload, flows, flow_windows, steps
-- optional: steps, step_flows
-- column: run_id
-- column: root_ip; root of the tree, or centre of the star; null where nothing tells
-- column: root_confidence share; confidence in the root, given the topology: of roots with this confidence so many are right (docs/topology.md has the table); 1 of a centre, which the graph shows; null where nothing tells
-- column: towards_root_share share; part of the compared exchanges of the links whose data towards the root come first; null of a centre
-- column: compared_links links; links whose two directions could be compared
-- column: compared_exchanges transfers; exchanges of these links that were compared, one a link and step
-- A host of a tree cannot pass on a sum before it has received all parts of it. So in each exchange data towards the root
-- (reduction) come before data away from it (broadcast), byte by byte, also where both directions are sent in segments at
-- once. An exchange is a step's part of what a pair sends from the first step on, by bytes and not by time: bytes that
-- are sent after the log ends their step do not shift it. They are counted backwards from the last one, without what was
-- sent again. The direction that comes first is the one whose bytes have the earlier mean time, to a base window.
-- A link is compared where both directions carry as many exchanges, to half of one: else one of them is cut off or lost.
-- The exchanges of a link are not independent, so they count as one witness: the chance that it leads to the root is
-- (first + doubt) / (exchanges + 2 doubt). The confidence of a host as the root is the product over all links, in parts
-- of the sum over all hosts.
WITH RECURSIVE thresholds AS (
    SELECT 0.1 AS doubt,          -- exchanges each way that a link is given before any is seen
           0.5 AS most_unequal    -- exchanges that one direction may carry more than the other
), trees AS MATERIALIZED (
    SELECT run_id, level, hosts, centre_ip
    FROM topology_matches
    WHERE topology IN (SELECT topology FROM collective_laws() WHERE is_rooted)
), links AS MATERIALIZED (
    SELECT run_id, e.src_ip, e.dst_ip, p.steps
    FROM trees
    JOIN topology_edges AS e USING (run_id, level)
    JOIN pair_payload AS p USING (run_id, src_ip, dst_ip)
    WHERE centre_ip IS NULL
), first_steps AS (
    SELECT run_id, min(start_ns) AS begin_ns
    FROM steps
    GROUP BY run_id
), link_flows AS MATERIALIZED (  -- few of all flows, so that few windows are read
    SELECT run_id, flow_id, src_ip, dst_ip, links.steps, begin_ns
    FROM flows
    JOIN links USING (run_id, src_ip, dst_ip)
    JOIN first_steps USING (run_id)
), link_windows AS MATERIALIZED (
    SELECT run_id, src_ip, dst_ip, steps, window_start_ns,
           sum(payload_bytes - coalesce(retransmitted_bytes, 0))::DOUBLE AS bytes
    FROM flow_windows
    JOIN link_flows USING (run_id, flow_id)
    WHERE payload_bytes > 0 AND window_start_ns >= begin_ns
    GROUP BY ALL
), sums AS (
    SELECT run_id, src_ip, dst_ip, sum(bytes) / any_value(steps) AS exchange_bytes
    FROM link_windows
    GROUP BY ALL
), equal_links AS (  -- both directions are divided alike
    SELECT s.run_id, s.src_ip, s.dst_ip, greatest(s.exchange_bytes, o.exchange_bytes) AS exchange_bytes
    FROM sums AS s
    JOIN sums AS o ON o.run_id = s.run_id AND o.src_ip = s.dst_ip AND o.dst_ip = s.src_ip
    JOIN links AS l ON l.run_id = s.run_id AND l.src_ip = s.src_ip AND l.dst_ip = s.dst_ip
    CROSS JOIN thresholds
    WHERE abs(s.exchange_bytes - o.exchange_bytes) * l.steps <= most_unequal * greatest(s.exchange_bytes, o.exchange_bytes)
), numbered AS (  -- by the middle of a window's bytes, backwards from the last exchange
    SELECT *, floor((sum(bytes) OVER (PARTITION BY run_id, src_ip, dst_ip ORDER BY window_start_ns DESC) - bytes / 2)
                    / exchange_bytes)::BIGINT AS exchange
    FROM link_windows
    JOIN equal_links USING (run_id, src_ip, dst_ip)
), exchanges AS (
    SELECT run_id, src_ip, dst_ip, exchange, sum(window_start_ns::DOUBLE * bytes) / sum(bytes) AS mean_ns
    FROM numbered
    WHERE bytes > 0 AND exchange < steps
    GROUP BY ALL
), directions AS (
    SELECT x.run_id, x.src_ip, x.dst_ip, count(*) AS exchanges,
           sum(CASE WHEN x.mean_ns < o.mean_ns THEN 1 WHEN x.mean_ns = o.mean_ns THEN 0.5 ELSE 0 END)::DOUBLE AS first
    FROM exchanges AS x
    JOIN exchanges AS o ON o.run_id = x.run_id AND o.src_ip = x.dst_ip AND o.dst_ip = x.src_ip AND o.exchange = x.exchange
    GROUP BY ALL
), witnesses AS (
    SELECT run_id, l.src_ip, l.dst_ip, coalesce(exchanges, 0) AS exchanges, coalesce(first, 0) AS first,
           coalesce((first + doubt) / (exchanges + 2 * doubt), 0.5) AS chance
    FROM links AS l
    LEFT JOIN directions USING (run_id, src_ip, dst_ip)
    CROSS JOIN thresholds
), paths AS (  -- from each host along all links, each of them towards it
    SELECT run_id, dst_ip AS host_ip, src_ip, dst_ip FROM links
    UNION
    SELECT p.run_id, host_ip, l.src_ip, l.dst_ip
    FROM paths AS p
    JOIN links AS l ON l.run_id = p.run_id AND l.dst_ip = p.src_ip AND l.src_ip <> p.dst_ip
), hosts_as_root AS (
    SELECT run_id, host_ip, sum(ln(chance)) AS log_chance, sum(first) / nullif(sum(exchanges), 0) AS share,
           count(*) FILTER (exchanges > 0) AS compared_links, sum(exchanges) AS compared_exchanges
    FROM paths
    JOIN witnesses USING (run_id, src_ip, dst_ip)
    GROUP BY run_id, host_ip
), compared AS (
    SELECT *, log_chance - max(log_chance) OVER (PARTITION BY run_id) AS below_best
    FROM hosts_as_root
), roots AS (
    SELECT *, 1 / sum(exp(below_best)) OVER (PARTITION BY run_id) AS confidence
    FROM compared
    QUALIFY row_number() OVER (PARTITION BY run_id ORDER BY log_chance DESC, host_ip) = 1
)
SELECT run_id, CASE WHEN compared_links > 0 THEN host_ip ELSE centre_ip END AS root_ip,
       CASE WHEN compared_links > 0 THEN confidence WHEN centre_ip IS NOT NULL THEN 1 END AS root_confidence,
       share AS towards_root_share, coalesce(compared_links, 0) AS compared_links,
       coalesce(compared_exchanges, 0)::BIGINT AS compared_exchanges
FROM trees
LEFT JOIN roots USING (run_id)
ORDER BY run_id
