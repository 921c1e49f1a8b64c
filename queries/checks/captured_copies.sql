-- question: Which runs have captures that hold each packet several times?
-- row: a run
-- inputs: flows
-- column: run_id
-- column: flows; TCP flows of 10,000 bytes of payload or more of which 40 % or more was captured again
-- column: payload_bytes bytes; their payload, with what was captured again
-- column: repeated_share share; part of payload_bytes that the flow had before
-- column: problem; what is wrong, and what to do
-- tcpdump -i any on a host with a bridge captures a packet at the port in, at the bridge and at the port out; a mirror port of both
-- directions has it twice, as do captures of both ends that are merged into one file. Where the link type (SLL, Ethernet) does not tell interfaces, such copies count as retransmitted. So much is never sent again: with 10 % of packets lost it is 14 % at most.
WITH copied AS (
    SELECT run_id, count(*) AS flows, sum(payload_bytes)::BIGINT AS payload_bytes, sum(retransmitted_bytes) / sum(payload_bytes) AS repeated_share
    FROM flows
    WHERE protocol = 6 AND payload_bytes >= 10_000 AND retransmitted_bytes >= 0.4 * payload_bytes
    GROUP BY run_id
)
SELECT run_id, flows, payload_bytes, repeated_share,
       format('{:.0f}% of their payload is there again, as where the captures of several hosts are merged into one, or all interfaces of a host with '
              'a bridge are captured: volumes are too large, and these copies count as retransmitted; ingest the captures as they were, or remove '
              'the copies (editcap -w 0.05); capture one interface, or all with their numbers (tcpdump -i any -y LINUX_SLL2)', 100 * repeated_share) AS problem
FROM copied
ORDER BY run_id
