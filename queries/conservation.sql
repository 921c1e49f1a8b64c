-- question: Does a run transmit what its algorithm must move, and what explains the rest?
-- row: a run
-- inputs: runs, flows, logged_steps, step_flows, topology_edges, exchange_laws
-- param: most_unexplained DOUBLE = 0.02; a run is flagged beyond this share of the expected bytes
-- column: run_id; run
-- column: topology; inferred topology
-- column: law; law of the exchange that leaves least unexplained (exchange_laws); where nothing can be compared the one that moves most
-- column: model_bytes bytes; bytes of trainable parameters, which is what a step exchanges
-- column: steps steps; different steps in the run's logs; null without a log
-- column: expected_bytes bytes; model_bytes times total_factor times steps
-- column: payload_bytes bytes; payload inside steps of the pairs that carry the exchange
-- column: spilled_bytes bytes; payload after the last step's end (pair averaging: or before the first step), at most what is missing and half a step
-- column: retransmitted_bytes bytes; part of payload_bytes that was sent again
-- column: unexplained_bytes bytes; payload_bytes + spilled_bytes - retransmitted_bytes - expected_bytes; framing of the library's messages is in it
-- column: unexplained_share ratio; unexplained_bytes over expected_bytes; negative where payload is missing
-- column: control_bytes bytes; payload inside steps of all other pairs
-- column: header_bytes bytes; headers and packets without payload, inside steps
-- column: wire_bytes bytes; payload_bytes + control_bytes + header_bytes: all wire bytes inside steps
-- column: flagged; whether unexplained_share is beyond most_unexplained, either way; null where nothing can be compared
-- column: problem; what is missing for a comparison; null where nothing is
-- column: hosts hosts; hosts that take part in the exchange
-- column: level; level of topology_edges of the pairs that carry it
-- column: total_factor ratio; payload of a step over all pairs, over the bytes that a step exchanges (exchange_laws)
-- Of the pairs that carry the exchange (topology_edges; in pair averaging all pairs) and all steps together.
-- spilled_bytes were still to be sent when the end of the last step was logged; in asynchronous pair averaging what others
-- requested from a worker before its own first step is in it too.
WITH thresholds AS (
    SELECT 0.5 AS most_spilled_steps  -- of a step's expected bytes: more is not the rest of the last step
), laws AS MATERIALIZED (
    FROM exchange_laws
), shapes AS (
    SELECT DISTINCT run_id, topology, level, hosts
    FROM laws
), step_counts AS (
    SELECT run_id, steps
    FROM logged_steps
), flow_sums AS (
    SELECT run_id, flow_id,
           coalesce(sum(payload_bytes) FILTER (position = 'during'), 0) AS payload,
           coalesce(sum(payload_bytes) FILTER (position = 'after'), 0) AS after_payload,
           coalesce(sum(payload_bytes) FILTER (position = 'before'), 0) AS before_payload,
           coalesce(sum(wire_bytes) FILTER (position = 'during'), 0) AS wire
    FROM step_flows
    GROUP BY run_id, flow_id
), pair_sums AS (
    SELECT run_id, src_ip, dst_ip, sum(payload) AS payload, sum(after_payload) AS after_payload, sum(before_payload) AS before_payload,
           sum(wire) AS wire,
           sum(coalesce(retransmitted_bytes, 0) * payload / nullif(payload_bytes, 0)) AS retransmitted
    FROM flow_sums
    JOIN flows USING (run_id, flow_id)
    GROUP BY run_id, src_ip, dst_ip
), matched AS (  -- in pair averaging every pair
    SELECT run_id, src_ip, dst_ip, true AS is_matched
    FROM topology_edges
    JOIN shapes USING (run_id, level)
    WHERE topology <> 'pair_averaging'
    UNION ALL
    SELECT run_id, src_ip, dst_ip, true
    FROM pair_sums
    JOIN shapes USING (run_id)
    WHERE topology = 'pair_averaging'
), run_sums AS (
    SELECT run_id, coalesce(sum(payload) FILTER (is_matched), 0) AS payload,
           coalesce(sum(after_payload) FILTER (is_matched), 0) AS after_payload,
           coalesce(sum(before_payload) FILTER (is_matched), 0) AS before_payload,
           coalesce(sum(retransmitted) FILTER (is_matched), 0) AS retransmitted,
           coalesce(sum(payload) FILTER (is_matched IS NULL), 0) AS control, sum(wire) AS wire
    FROM pair_sums
    LEFT JOIN matched USING (run_id, src_ip, dst_ip)
    GROUP BY run_id
), compared AS (
    SELECT run_id, law, total_factor, model_bytes * total_factor * steps AS expected,
           least(after_payload + CASE WHEN laws.topology = 'pair_averaging' THEN before_payload ELSE 0 END,
                 greatest(expected - (payload - retransmitted), 0), most_spilled_steps * expected / steps) AS spilled,
           payload + spilled - retransmitted - expected AS unexplained
    FROM run_sums
    JOIN runs USING (run_id)
    JOIN step_counts USING (run_id)
    JOIN laws USING (run_id)
    CROSS JOIN thresholds
    WHERE model_bytes > 0 AND law IS NOT NULL
    QUALIFY row_number() OVER (PARTITION BY run_id ORDER BY abs(payload + spilled - retransmitted - expected), law) = 1
), first_laws AS (  -- where nothing can be compared
    SELECT run_id, arg_max(law, (total_factor, law)) AS first_law, max(total_factor) AS first_factor
    FROM laws
    GROUP BY run_id
)
SELECT run_id, shapes.topology, coalesce(law, first_law) AS law, model_bytes, step_counts.steps,
       round(expected)::BIGINT AS expected_bytes, payload::BIGINT AS payload_bytes, round(spilled)::BIGINT AS spilled_bytes,
       round(retransmitted)::BIGINT AS retransmitted_bytes, round(unexplained)::BIGINT AS unexplained_bytes,
       unexplained / expected AS unexplained_share, control::BIGINT AS control_bytes,
       (wire - payload - control)::BIGINT AS header_bytes, wire::BIGINT AS wire_bytes,
       abs(unexplained) > $most_unexplained * expected AS flagged,
       CASE WHEN shapes.topology IS NULL OR shapes.topology = 'unknown' THEN 'topology unknown'
            WHEN step_counts.steps IS NULL THEN 'no training log'
            WHEN coalesce(model_bytes, 0) <= 0 THEN 'model_bytes unknown'
            WHEN expected IS NULL THEN 'no traffic in steps' END AS problem,
       hosts, level, coalesce(total_factor, first_factor) AS total_factor
FROM runs
LEFT JOIN shapes USING (run_id)
LEFT JOIN step_counts USING (run_id)
LEFT JOIN run_sums USING (run_id)
LEFT JOIN compared USING (run_id)
LEFT JOIN first_laws USING (run_id)
ORDER BY run_id
