-- question: Which lanes does a timeline of a run have?
-- subject: timelines
-- row: a run and a lane: a host, or a worker with steps or events whose host is not known
-- inputs: hosts, host_names, steps, program_events
-- column: run_id
-- column: lane; number of the lane in its run, from 1
-- column: name; name of the host and its address, or label of the worker
-- column: host_ip; address of the host; null for a worker whose host is not known
-- column: worker; worker whose steps and events are in the lane; null where there are none
-- Hosts come first, in the order of host_names, then workers by name; the lane after the last is free for what belongs
-- to no host.
WITH workers AS (
    SELECT DISTINCT run_id, worker FROM steps
    UNION
    SELECT DISTINCT run_id, worker FROM program_events
), known AS (
    SELECT run_id, host_ip, label, host || CASE WHEN host = host_ip THEN '' ELSE ' ' || host_ip END AS name, place
    FROM hosts
    JOIN host_names USING (run_id, host_ip)
), lanes AS (
    SELECT run_id, name, host_ip,
           -- of two hosts with one label, the first has the worker's steps
           CASE WHEN row_number() OVER (PARTITION BY run_id, label ORDER BY place) = 1 THEN worker END AS worker, place
    FROM known
    LEFT JOIN workers USING (run_id)
    WHERE worker = label
    UNION ALL
    SELECT run_id, name, host_ip, NULL, place
    FROM known
    WHERE (run_id, label) NOT IN (FROM workers) OR label IS NULL
    UNION ALL
    SELECT run_id, worker, NULL, worker, NULL
    FROM workers
    WHERE (run_id, worker) NOT IN (SELECT run_id, label FROM known WHERE label IS NOT NULL)
)
SELECT run_id, row_number() OVER (PARTITION BY run_id ORDER BY place NULLS LAST, name) AS lane, name, host_ip, worker
FROM lanes
ORDER BY run_id, lane
