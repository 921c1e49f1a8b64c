-- question: What is each flow called in a figure?
-- subject: volume
-- row: a run and a five-tuple
-- inputs: five_tuples, host_names
-- column: run_id
-- column: flow_id
-- column: flow; sender and receiver (host_names) with their ports; the protocol unless it is TCP, RoCE queue pair and tunnel
SELECT f.run_id, flow_id,
       coalesce(src.host, src_ip) || ':' || src_port || ' → ' || coalesce(dst.host, dst_ip) || ':' || dst_port
           || CASE protocol WHEN 6 THEN '' WHEN 17 THEN ' UDP' ELSE ' protocol ' || protocol END
           || coalesce(' QP ' || roce_dest_qp, '') || coalesce(' in tunnel ' || encapsulation_id, '') AS flow
FROM five_tuples AS f
LEFT JOIN host_names AS src ON src.run_id = f.run_id AND src.host_ip = src_ip
LEFT JOIN host_names AS dst ON dst.run_id = f.run_id AND dst.host_ip = dst_ip
ORDER BY f.run_id, flow_id
