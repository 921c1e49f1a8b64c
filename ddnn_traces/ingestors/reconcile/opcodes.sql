-- The rows of the table flow_opcodes.
-- One row: a RoCEv2 flow and an opcode.
CREATE TEMP TABLE opcodes AS
SELECT flow_id, roce_opcode, sum(packets)::BIGINT AS packets, sum(wire_bytes)::BIGINT AS wire_bytes,
       sum(payload_bytes)::BIGINT AS payload_bytes
FROM connections JOIN flow_map USING (file, flow) WHERE roce_opcode IS NOT NULL GROUP BY ALL;
