-- question: How long before a layer computes again are its gradients exchanged, in a simulated run?
-- subject: timelines
-- row: a run, a worker, a step and a layer with gradients
-- inputs: runs, events, steps
-- figure: gao figs. 4.8 to 4.11
-- column: run_id from events
-- column: worker; label of the worker
-- column: step; number of the training step, from 0; it begins with the backward pass
-- column: layer; number of the layer, from the input on, from 0
-- column: name; name of the layer
-- column: gradient_bytes bytes; bytes of the layer's gradients
-- column: computed_ms ms; end of the layer's backward computation, since the step's start
-- column: exchange_start_ms ms; start of the exchange of the buffer that the gradients are in, since the step's start
-- column: exchange_end_ms ms; end of that exchange, since the step's start
-- column: needed_ms ms; start of the layer's forward computation, since the step's start
-- column: slack_ms ms; needed_ms - exchange_end_ms: so much later the gradients could come
-- Only simulated runs with events of layers have rows. With the barrier the forward pass waits for all gradients: then
-- slack includes the wait for the gradients of other layers.
WITH passes AS (
    SELECT run_id, worker, step, kind, priority AS layer, name, bytes, start_ns, end_ns
    FROM events
    SEMI JOIN (FROM runs WHERE source IN ('simulation', 'ns3')) USING (run_id)
    WHERE kind IN ('forward', 'backward') AND priority IS NOT NULL
), exchanges AS (  -- of a buffer in parts, or in two phases, from the first to the last
    SELECT run_id, worker, step, priority AS first_layer, min(start_ns) AS start_ns, max(end_ns) AS end_ns
    FROM events
    SEMI JOIN (FROM runs WHERE source IN ('simulation', 'ns3')) USING (run_id)
    WHERE kind IN ('allreduce', 'reduce', 'broadcast', 'recv') AND priority IS NOT NULL
    GROUP BY ALL
)
SELECT b.run_id, b.worker, b.step, b.layer, b.name, b.bytes AS gradient_bytes,
       (b.end_ns - s.start_ns) / 1e6 AS computed_ms,
       (e.start_ns - s.start_ns) / 1e6 AS exchange_start_ms,
       (e.end_ns - s.start_ns) / 1e6 AS exchange_end_ms,
       (f.start_ns - s.start_ns) / 1e6 AS needed_ms,
       (f.start_ns - e.end_ns) / 1e6 AS slack_ms
FROM passes AS b
JOIN passes AS f ON f.run_id = b.run_id AND f.worker = b.worker AND f.step = b.step AND f.layer = b.layer
                AND f.kind = 'forward'
JOIN steps AS s ON s.run_id = b.run_id AND s.worker = b.worker AND s.step = b.step
ASOF JOIN exchanges AS e ON e.run_id = b.run_id AND e.worker = b.worker AND e.step = b.step AND e.first_layer <= b.layer
WHERE b.kind = 'backward' AND b.bytes > 0
ORDER BY b.run_id, b.worker, b.step, b.layer
