-- Packets and bytes of each file by reason: in flows, copies that do not count, excluded by the filter.
-- One row: a capture and a reason. The records outside of flows are added by run_tables.py.
-- Parameters: the reasons in_flows, duplicate_vantage, filtered.
CREATE TEMP TABLE ledger AS
SELECT capture_id, reason, sum(packets)::BIGINT AS packets, sum(wire_bytes)::BIGINT AS wire_bytes
FROM (SELECT file, packets, wire_bytes, CASE WHEN counts THEN $in_flows ELSE $duplicate_vantage END AS reason
      FROM ranked
      UNION ALL
      SELECT file, packets, wire_bytes, $filtered FROM copies WHERE NOT kept)
JOIN files USING (file) GROUP BY ALL;
