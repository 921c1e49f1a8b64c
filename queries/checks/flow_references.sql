-- question: Which flows are duplicates, or refer to a tunnel or a reverse flow that does not match them?
-- row: a flow, or a tunnel (then flow_id is null), and what is wrong with it
-- inputs: flows, encapsulations
-- column: run_id
-- column: flow_id; number of the flow; null where a tunnel is meant
-- column: encapsulation_id; tunnel; null where the flow is in none
-- column: problem; what is wrong
WITH problems AS (
    SELECT run_id, flow_id, encapsulation_id,
           'another flow has the same addresses, ports, tunnel, queue pair and connection' AS problem
    FROM flows
    QUALIFY count(*) OVER (PARTITION BY run_id, src_ip, dst_ip, protocol, src_port, dst_port, encapsulation_id,
                                        roce_dest_qp, connection) > 1
    UNION ALL
    SELECT f.run_id, f.flow_id, f.encapsulation_id, 'encapsulation_id is not in encapsulations'
    FROM flows AS f
    ANTI JOIN encapsulations AS e ON e.run_id = f.run_id AND e.encapsulation_id = f.encapsulation_id
    WHERE f.encapsulation_id IS NOT NULL
    UNION ALL
    SELECT t.run_id, NULL, t.encapsulation_id, 'parent_id is not in encapsulations'
    FROM encapsulations AS t
    ANTI JOIN encapsulations AS e ON e.run_id = t.run_id AND e.encapsulation_id = t.parent_id
    WHERE t.parent_id IS NOT NULL
    UNION ALL
    SELECT f.run_id, f.flow_id, f.encapsulation_id,
           'reverse_flow_id is no flow with the ends exchanged that names this one'
    FROM flows AS f
    ANTI JOIN flows AS r
        ON r.run_id = f.run_id AND r.flow_id = f.reverse_flow_id AND r.reverse_flow_id = f.flow_id
       AND (r.src_ip, r.dst_ip, r.protocol, r.src_port, r.dst_port)
         = (f.dst_ip, f.src_ip, f.protocol, f.dst_port, f.src_port)
    WHERE f.reverse_flow_id IS NOT NULL
)
SELECT run_id, flow_id, encapsulation_id, problem
FROM problems
ORDER BY run_id, flow_id, encapsulation_id, problem
