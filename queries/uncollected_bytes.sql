-- question: What do the connections of a training job carry that is in none of its collectives?
-- subject: collectives
-- row: a run and a job of which that is at least 1% of the bytes of its collectives
-- inputs: flows, messages, job_flows, job_steps, collective_transfers
-- answer: payload_bytes, share, steps_with
-- column: run_id from job_flows
-- column: job from job_flows
-- column: payload_bytes bytes; payload from the first step on, both ways, that is in no collective of a step
-- column: share ratio; payload_bytes over what the job's flows send in all steps for collectives
-- column: steps_with steps; steps in or behind which so much of it goes
-- column: steps steps; of which the captures have all bytes
-- column: sentence; the finding in words, without a full stop
-- Collectives are those of each step (collectives). What hosts do behind a few steps only, as an all-gather of predictions or of a state, is in none.
-- It is what a flow of the job sends from the start of a step to the next one's beyond the bytes of a step, and all that its answers' flow
-- sends in that time, of the last step until its end and a usual time from start to start. So much: at least 2% of what the largest flow sends in a step. Less is control messages, as
-- answers of gRPC, and so are messages of up to 64 bytes there. Of flows whose steps differ (an unequal all-to-all) nothing is said.
WITH thresholds AS (
    SELECT 0.01 AS least_share, 0.02 AS least_of_flow, 64 AS most_control
), stretches AS (
    SELECT run_id, job, step, start_ns, count(*) OVER (PARTITION BY run_id, job) AS steps,
           coalesce(next_ns, end_ns + median(next_ns - start_ns) OVER (PARTITION BY run_id, job)) AS until_ns
    FROM (SELECT run_id, job, step, start_ns, end_ns, lead(start_ns) OVER (PARTITION BY run_id, job ORDER BY step) AS next_ns FROM job_steps)
), sizes AS (
    SELECT run_id, job, max(step_bytes) AS flow_bytes, sum(step_bytes) AS all_bytes
    FROM job_flows
    GROUP BY run_id, job
), begun AS (  -- where the step of a flow starts in its bytes
    SELECT t.run_id, t.job, t.flow_id, step, min(stream_offset) AS place
    FROM (SELECT run_id, job, flow_id, step, min(first_ns) AS first_ns FROM collective_transfers GROUP BY ALL) AS t
    JOIN messages AS m USING (run_id, flow_id, first_ns)
    GROUP BY ALL
), beyond AS (
    SELECT run_id, job, flow_id, step, lead(place) OVER of_flow - place - (lead(step) OVER of_flow - step) * step_bytes AS excess_bytes
    FROM begun
    JOIN job_flows USING (run_id, job, flow_id)
    WINDOW of_flow AS (PARTITION BY run_id, job, flow_id ORDER BY step)
), answers AS (
    SELECT DISTINCT run_id, job, reverse_flow_id AS flow_id
    FROM job_flows
    JOIN flows USING (run_id, flow_id)
    ANTI JOIN job_flows AS o ON o.run_id = flows.run_id AND o.job = job_flows.job AND o.flow_id = reverse_flow_id
), answered AS (
    SELECT s.run_id, s.job, flow_id, step, sum(bytes) AS excess_bytes
    FROM (SELECT run_id, job, flow_id, first_ns, bytes
          FROM messages
          JOIN answers USING (run_id, flow_id)
          CROSS JOIN thresholds
          WHERE bytes > most_control) AS m
    ASOF JOIN stretches AS s ON s.run_id = m.run_id AND s.job = m.job AND m.first_ns >= s.start_ns
    WHERE first_ns < until_ns
    GROUP BY ALL
), excesses AS (
    SELECT run_id, job, step, excess_bytes
    FROM (SELECT *, sum(excess_bytes) OVER (PARTITION BY run_id, job, flow_id) AS of_flow_bytes FROM beyond
          UNION ALL
          SELECT *, excess_bytes FROM answered)
    JOIN sizes USING (run_id, job)
    CROSS JOIN thresholds
    WHERE excess_bytes >= least_of_flow * flow_bytes AND of_flow_bytes >= least_of_flow * flow_bytes
), found AS (
    SELECT run_id, job, sum(excess_bytes)::BIGINT AS payload_bytes, count(DISTINCT step) AS steps_with
    FROM excesses
    GROUP BY run_id, job
)
SELECT run_id, job, payload_bytes, payload_bytes / (steps * all_bytes) AS share, steps_with, steps,
       format('Its connections carry {:.3g} MB, {:.2g}% of the bytes of its collectives, that are in none of these, in or behind {} of {} steps',
              payload_bytes / 1e6, 100 * share, steps_with, steps) AS sentence
FROM found
JOIN (SELECT DISTINCT run_id, job, steps FROM stretches) USING (run_id, job)
JOIN sizes USING (run_id, job)
CROSS JOIN thresholds
WHERE share >= least_share
ORDER BY run_id, job
