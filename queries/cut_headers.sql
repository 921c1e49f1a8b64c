-- question: Of which runs does the snapshot length of the captures cut TCP headers, and which length is enough?
-- subject: runs
-- row: a run with a TCP flow whose headers are cut
-- inputs: flows, captures
-- column: run_id
-- column: flows flows; TCP flows of the run
-- column: cut_flows flows; those of them of whose packets the TCP header is not whole in the captures
-- column: captures captures; files that these flows count in: of their senders, else of their receivers, else all
-- column: kept_bytes bytes; that the files have of each packet of these flows
-- column: header_bytes bytes; of a packet of these flows up to the end of a TCP header without options; the longest
-- column: enough_bytes bytes; snapshot length that holds all TCP options, too (40 bytes), in steps of 32
-- column: problem; the same in words
-- A TCP header has its sequence number in bytes 4 to 7, its length in byte 12 and its flags in byte 13 (RFC 9293). Where these are cut,
-- ingest takes a header of 20 bytes, so that options count as payload, and numbers, losses and messages of the flow are not known.
-- With an Ethernet header of 14 bytes, TCP over IPv4 needs 54 bytes and over IPv6 74.
WITH tcp AS (
    SELECT run_id, src_ip, dst_ip, captured_bytes / packets AS kept, (wire_bytes - payload_bytes) / packets AS header,
           missed_bytes IS NULL AND captured_bytes < wire_bytes - payload_bytes AS is_cut  -- of fragments the numbers are not known either
    FROM flows
    WHERE protocol = 6
), counted AS (
    SELECT run_id, count(*) AS flows, count(*) FILTER (is_cut) AS cut_flows, min(kept) FILTER (is_cut)::BIGINT AS kept_bytes,
           ceil(max(header) FILTER (is_cut))::BIGINT AS header_bytes
    FROM tcp
    GROUP BY run_id
    HAVING cut_flows > 0
), seen AS (
    SELECT DISTINCT t.run_id, capture_id
    FROM tcp AS t
    JOIN captures AS c ON t.run_id = c.run_id AND records > 0
    WHERE is_cut
    QUALIFY rank() OVER (PARTITION BY t.run_id, src_ip, dst_ip
                         ORDER BY CASE vantage_ip WHEN src_ip THEN 1 WHEN dst_ip THEN 2 ELSE 3 END) = 1
), files AS (
    SELECT run_id, count(*) AS captures, min(capture_id) AS first_capture, max(capture_id) AS last_capture
    FROM seen
    GROUP BY run_id
), needed AS (
    SELECT *, (32 * ceil((header_bytes + 40) / 32))::BIGINT AS enough_bytes
    FROM counted
    JOIN files USING (run_id)
)
SELECT run_id, flows, cut_flows, captures, kept_bytes, header_bytes, enough_bytes,
       format('the snapshot length cuts the TCP headers of {} flows: {} {} {} bytes of each packet, and the headers alone need {}; '
              'so TCP options count as payload, and sequence numbers, losses, messages and jobs are not known. Capture with tcpdump -s {}',
              CASE WHEN cut_flows < flows THEN format('{} of {}', cut_flows, flows) ELSE format('all {}', flows) END,
              CASE captures WHEN 1 THEN first_capture WHEN 2 THEN format('{} and {}', first_capture, last_capture)
                            ELSE format('{} files, {} to {},', captures, first_capture, last_capture) END,
              CASE captures WHEN 1 THEN 'has' ELSE 'have' END, kept_bytes, header_bytes, enough_bytes) AS problem
FROM needed
ORDER BY run_id
