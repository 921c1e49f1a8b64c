-- question: What does each pair of a worker and a parameter server exchange in each step, in each direction?
-- subject: servers
-- row: a run, a step, a phase (aggregation or distribution), a parameter server and a worker
-- inputs: flow_windows, parameter_server_flows, parameter_server_logs, parameter_server_steps
-- figure: chang section 3 (aggregation and distribution)
-- column: run_id
-- column: step
-- column: phase
-- column: server_ip
-- column: worker_ip
-- column: payload_bytes bytes; payload of the pair in the step, in this direction
-- column: wire_bytes bytes; original lengths of its frames
-- column: begin_ns ns since the epoch, UTC; start of the first window in which a flow of the pair is busy
-- column: end_ns ns since the epoch, UTC; end of the last window with payload
-- column: window_ns ns; length of a base window: the resolution of both times
-- Only runs in which the steps of all workers are known (parameter_server_logs) have rows, asynchronous ones among
-- them. A base window belongs to the worker's step (parameter_server_steps) in which it begins, and what comes after a step's end
-- belongs to that step until the worker begins the next: a server may log a step's end before the last byte has left
-- it. So times and bytes are exact to a base window; the clocks of a worker's log and of a server's capture are taken
-- as one. A flow is busy from a tenth of its mean payload per window: what is left of the step before, or sent again,
-- is no start. In the steps of a chief nothing is left of the step before, but the flows carry small messages of control
-- too, so that a pair begins and ends with a window from 256 payload bytes on.
WITH thresholds AS (
    SELECT 0.1 AS busy_share,   -- of a flow's mean payload per window: what begins a pair
           256 AS control_bytes -- payload of a window: fewer are messages of control (gRPC pings and answers: 17 to 57)
), worker_steps AS (
    SELECT run_id, worker, step, start_ns, until_ns, steps_from = 'chief' AS of_chief
    FROM parameter_server_steps
    WHERE run_id IN (SELECT run_id FROM parameter_server_logs WHERE problem IS NULL)
), run_grids AS (
    SELECT run_id, greatest(avg(until_ns - start_ns), 1)::BIGINT AS cell_ns
    FROM worker_steps
    GROUP BY run_id
), numbered_flows AS (
    SELECT *, row_number() OVER (ORDER BY run_id, flow_id) AS flow_number,
           dense_rank() OVER (ORDER BY run_id, worker) AS worker_number
    FROM parameter_server_flows
    JOIN run_grids USING (run_id)
), server_flows AS MATERIALIZED (  -- through one list, else DuckDB expects billions of flows and builds its join on the windows
    SELECT unnest(list(f), max_depth := 2)
    FROM numbered_flows AS f
), step_cells AS (  -- a step in each cell of a grid that it touches: a window finds its step by number and cell, fast
    SELECT DISTINCT worker_number, step, start_ns, until_ns, of_chief,
           unnest(range(start_ns // cell_ns, until_ns // cell_ns + 1)) AS cell
    FROM worker_steps
    JOIN server_flows USING (run_id, worker)
), window_cells AS MATERIALIZED (  -- else the cell is worked out after a join of every window with every step
    SELECT flow_number, worker_number, window_start_ns // cell_ns AS cell, window_start_ns, window_ns, payload_bytes,
           wire_bytes
    FROM flow_windows
    JOIN server_flows USING (run_id, flow_id)
), means AS (
    SELECT flow_number, (SELECT busy_share FROM thresholds) * avg(payload_bytes) AS busy_bytes
    FROM window_cells
    WHERE payload_bytes > 0
    GROUP BY flow_number
), flow_steps AS (
    SELECT flow_number, step, sum(payload_bytes) AS payload, sum(wire_bytes) AS wire,
           min(window_start_ns) FILTER (payload_bytes > 0) AS first_ns,
           min(window_start_ns) FILTER (payload_bytes > 0 AND payload_bytes >= CASE WHEN of_chief THEN control_bytes ELSE busy_bytes END)
               AS begin_ns,
           max(window_start_ns + window_ns) FILTER (payload_bytes >= CASE WHEN of_chief THEN control_bytes ELSE 1 END) AS end_ns,
           max(window_ns) AS window_ns
    FROM window_cells
    CROSS JOIN thresholds
    JOIN means USING (flow_number)
    JOIN step_cells USING (worker_number, cell)
    WHERE window_start_ns >= start_ns AND window_start_ns < until_ns
    GROUP BY flow_number, step
)
SELECT run_id, step, phase, server_ip, worker_ip,
       sum(payload)::BIGINT AS payload_bytes, sum(wire)::BIGINT AS wire_bytes,
       coalesce(min(begin_ns), min(first_ns)) AS begin_ns, max(end_ns) AS end_ns, max(window_ns) AS window_ns
FROM flow_steps
JOIN server_flows USING (flow_number)
GROUP BY ALL
ORDER BY run_id, step, phase, server_ip, worker_ip
