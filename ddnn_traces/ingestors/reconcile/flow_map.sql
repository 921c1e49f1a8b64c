-- From a file's flow number to flow_id, for the rows that count, with what messages need of them (trains.sql).
-- One row: a file and a flow of it. opcode: of RoCEv2, of which a flow of a file has one. largest_bytes, has_psh: payload of the
-- largest segment of the flow, whether any has PSH. shift: what to add to a file's sequence numbers: they go on from those of the
-- file before by the nearest distance, modulo 2^32. held_to: as in connections.
CREATE TEMP TABLE flow_map AS
WITH counting AS (
    SELECT c.*, m.flow_id, lag(c.next_sequence) OVER (PARTITION BY m.flow_id ORDER BY c.file_order, c.flow) AS next_before
    FROM connections AS c JOIN merged AS m
      ON (c.src_ip, c.dst_ip, c.protocol, c.src_port, c.dst_port, c.connection)
       = (m.src_ip, m.dst_ip, m.protocol, m.src_port, m.dst_port, m.connection)
     AND c.encapsulation_id IS NOT DISTINCT FROM m.encapsulation_id AND c.roce_dest_qp IS NOT DISTINCT FROM m.roce_dest_qp
)
SELECT file, flow, flow_id, held_to, roce_opcode::SMALLINT AS opcode, max(largest_segment_bytes) OVER same::BIGINT AS largest_bytes,
       max(pushed_segments) OVER same > 0 AS has_psh,
       coalesce(sum(next_before - first_sequence
                    + (first_sequence % 4294967296 - next_before % 4294967296 + 6442450944) % 4294967296 - 2147483648)
                OVER (PARTITION BY flow_id ORDER BY file_order, flow), 0)::BIGINT AS shift
FROM counting WINDOW same AS (PARTITION BY flow_id);
