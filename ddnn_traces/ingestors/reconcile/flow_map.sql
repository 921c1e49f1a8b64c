-- From a file's flow number to flow_id, for the rows that count.
-- One row: a file and a flow of it; opcode: of RoCEv2, of which a flow of a file has one.
CREATE TEMP TABLE flow_map AS
SELECT c.file, c.flow, m.flow_id, c.roce_opcode AS opcode FROM connections AS c JOIN merged AS m
  ON (c.src_ip, c.dst_ip, c.protocol, c.src_port, c.dst_port, c.connection)
   = (m.src_ip, m.dst_ip, m.protocol, m.src_port, m.dst_port, m.connection)
 AND c.encapsulation_id IS NOT DISTINCT FROM m.encapsulation_id AND c.roce_dest_qp IS NOT DISTINCT FROM m.roce_dest_qp;
