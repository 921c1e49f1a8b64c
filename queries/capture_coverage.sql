-- question: Do the captures of a run cover all of its hosts, or is data that they exchange in none?
-- subject: runs
-- row: a run
-- inputs: runs, hosts, flows, captures, topology_words
-- answer: covered_hosts, problem
-- column: run_id from runs
-- column: hosts hosts; hosts that must be covered: declared workers and known parameter servers; without declared workers those that exchange data; null for a run without a capture
-- column: captured_hosts hosts; hosts with a capture of their own; null where a capture was not taken at a host, as at a mirror port
-- column: covered_hosts hosts; of hosts those with a capture, and those that the captures of others show both to send data and to get data; without known vantages those that send
-- column: uncaptured_hosts hosts; hosts without a capture that others exchange data with; null where captured_hosts is
-- column: one_way_hosts hosts; of captured_hosts those whose data is seen in one direction only; of all that exchange data where captured_hosts is null
-- column: problem; what is in no capture, or may be; null where nothing shows that something is missing
-- A host does not need its own capture: of a ring of 4 the captures of hosts 1 and 3 have every transfer, if they have both directions.
-- In a training each host sends data and gets data. A host without a capture that is seen to do one of them only does the other where
-- nobody looked. Data between two hosts without a capture is nowhere: in a ring, or with one server, the covered hosts show that there is none.
-- In a training a host with a capture of its own sends data and gets data: where one of them is not there, the capture may
-- have a filter, or the program only sends: that is no problem of its own.
-- A pair exchanges data if it has at least 1% of the payload of the run's heaviest pair.
WITH thresholds AS (
    SELECT 0.01 AS data_share  -- of the heaviest pair's payload: a pair from here on exchanges data
), vantages AS (
    SELECT run_id, bool_and(vantage_ip IS NOT NULL) AS are_known
    FROM captures
    WHERE records > 0
    GROUP BY run_id
), pairs AS (
    SELECT run_id, src_ip, dst_ip, sum(coalesce(payload_bytes, wire_bytes)) AS payload_bytes  -- of parsed files on the wire
    FROM flows
    GROUP BY run_id, src_ip, dst_ip
), data AS (
    SELECT run_id, src_ip, dst_ip
    FROM pairs
    CROSS JOIN thresholds
    QUALIFY payload_bytes > 0 AND payload_bytes >= data_share * max(payload_bytes) OVER (PARTITION BY run_id)
), answered AS (  -- of which packets went back, be they acknowledgements: nobody captured one direction alone
    SELECT run_id, src_ip, dst_ip, EXISTS (FROM pairs AS p WHERE p.run_id = d.run_id AND p.src_ip = d.dst_ip AND p.dst_ip = d.src_ip) AS is_answered
    FROM data AS d
), ends AS (  -- what is known of each host
    SELECT run_id, src_ip AS host_ip, true AS sends, false AS gets, false AS is_captured, is_answered FROM answered
    UNION ALL
    SELECT run_id, dst_ip, false, true, false, is_answered FROM answered
    UNION ALL
    SELECT DISTINCT run_id, vantage_ip, false, false, true, true FROM captures WHERE vantage_ip IS NOT NULL
), seen AS (
    SELECT run_id, host_ip, bool_or(sends) AS sends, bool_or(gets) AS gets, bool_or(is_captured) AS is_captured,
           bool_and(is_answered) AS is_answered
    FROM ends
    GROUP BY run_id, host_ip
), counted AS (
    SELECT run_id, are_known, count(*) FILTER (is_captured) AS captured, count(*) FILTER (NOT is_captured) AS uncaptured,
           count(*) FILTER (are_known OR sends) AS all_seen,
           count(*) FILTER (CASE WHEN are_known THEN is_captured OR sends AND gets ELSE sends END) AS covered,
           count(*) FILTER ((is_captured OR NOT are_known) AND sends <> gets) AS one_way,
           bool_and(is_captured OR is_answered) AS are_both_ways
    FROM seen
    JOIN vantages USING (run_id)  -- what was not captured, as a generated run, has all its flows
    GROUP BY run_id, are_known
), servers AS (
    SELECT run_id, count(*) AS servers
    FROM hosts
    WHERE role = 'parameter_server'
    GROUP BY run_id
), sized AS (
    SELECT run_id, are_known, captured, uncaptured, one_way, are_both_ways, coalesce(workers + coalesce(servers, 0), all_seen) AS hosts,
           workers IS NOT NULL AS is_declared, least(covered, hosts) AS covered,
           coalesce(t.topology IN ('ring', 'star', 'parameter_server'), false) AS is_sparse  -- each host has one or two peers, but the server
    FROM runs
    JOIN counted USING (run_id)
    LEFT JOIN servers USING (run_id)
    LEFT JOIN topology_words AS t ON regexp_full_match(replace(lower(runs.topology), '-', '_'), pattern)
)
SELECT run_id, hosts::BIGINT AS hosts, CASE WHEN are_known THEN captured END AS captured_hosts, covered::BIGINT AS covered_hosts,
       CASE WHEN are_known THEN uncaptured END AS uncaptured_hosts, one_way AS one_way_hosts,
       CASE WHEN covered < hosts AND is_declared
                 THEN format('{} of {} hosts are not covered: not all that they send and get is in a capture', hosts - covered, hosts)
            WHEN covered < hosts AND uncaptured > 1 AND are_both_ways
                 THEN format('{} of {} hosts that exchange data have no capture: the captures have both directions of what they exchange with others, '
                             'and nothing of what they exchange with each other', hosts - covered, hosts)
            WHEN covered < hosts AND uncaptured > 1  -- one alone can only exchange with those that have captures
                 THEN format('{} of {} hosts that exchange data have no capture and are seen in one direction only', hosts - covered, hosts)
            WHEN are_known AND uncaptured > 1 AND NOT is_sparse
                 THEN format('{} hosts that exchange data have no capture: what they exchange with each other is not known', uncaptured)
       END AS problem
FROM runs
LEFT JOIN sized USING (run_id)
ORDER BY run_id
