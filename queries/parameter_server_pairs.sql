-- question: What does each pair of a worker and a parameter server exchange in each step, in each direction?
-- row: a run, a step, a phase (aggregation or distribution), a parameter server and a worker
-- inputs: flow_windows, steps, parameter_server_flows, parameter_server_runs
-- figure: chang section 3 (aggregation and distribution)
-- Of runs whose phases can be told. A base window belongs to the step of the worker's own log in which it begins, and what
-- comes after a step's end to that step until the worker begins the next: a server may log a step's end before the last
-- byte has left it. So times and bytes are good to a base window; the clocks of a worker's log and of a server's capture
-- are taken as one. A pair begins with the first window that has a tenth of its mean payload a window (what is left of the
-- step before, or sent again, is no begin) and ends with its last payload.
WITH worker_steps AS (
    SELECT run_id, worker, step, start_ns,
           coalesce(lead(start_ns) OVER (PARTITION BY run_id, worker ORDER BY start_ns), end_ns) AS until_ns
    FROM steps
    WHERE run_id IN (SELECT run_id FROM parameter_server_runs WHERE problem IS NULL)
), server_windows AS (  -- parallel connections of a pair are one
    SELECT f.run_id, phase, server_ip, worker_ip, worker, window_start_ns, max(window_ns) AS window_ns,
           sum(payload_bytes) AS payload, sum(wire_bytes) AS wire
    FROM flow_windows AS w
    JOIN parameter_server_flows AS f USING (run_id, flow_id)
    GROUP BY ALL
), step_windows AS (
    SELECT w.*, step
    FROM server_windows AS w
    ASOF JOIN worker_steps AS s
        ON s.run_id = w.run_id AND s.worker = w.worker AND w.window_start_ns >= s.start_ns
    WHERE window_start_ns < until_ns
), sums AS (
    SELECT run_id, step, phase, server_ip, worker_ip, sum(payload) AS payload, sum(wire) AS wire,
           avg(payload) FILTER (payload > 0) AS mean_payload,
           max(window_start_ns + window_ns) FILTER (payload > 0) AS end_ns, max(window_ns) AS window_ns
    FROM step_windows
    GROUP BY ALL
), begins AS (
    SELECT run_id, step, phase, server_ip, worker_ip, min(window_start_ns) AS begin_ns
    FROM step_windows AS w
    JOIN sums USING (run_id, step, phase, server_ip, worker_ip)
    WHERE w.payload > 0 AND w.payload >= 0.1 * mean_payload
    GROUP BY ALL
)
SELECT run_id, step, phase, server_ip, worker_ip, payload::BIGINT AS payload_bytes, wire::BIGINT AS wire_bytes,
       begin_ns, end_ns, window_ns
FROM sums
LEFT JOIN begins USING (run_id, step, phase, server_ip, worker_ip)
ORDER BY run_id, step, phase, server_ip, worker_ip
