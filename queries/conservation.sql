-- question: Does a run transmit what its algorithm must move, and what explains the rest?
-- subject: topology
-- row: a run
-- inputs: runs, flows, hosts, run_hosts, steps, events, logged_steps, step_flows, exchange_laws, topology_edges, training_spans, spilled_payload, first_steps_received, step_synchrony, parameter_servers, topology_words, unknown_payload
-- answer: payload_bytes, unexplained_share, flagged, problem
-- param: most_unexplained DOUBLE = 0.02; a run is flagged beyond this share of the expected bytes
-- column: run_id from flows
-- column: topology from exchange_laws
-- column: law; law of the exchange that leaves least unexplained (exchange_laws); where nothing can be compared the one that moves most
-- column: model_bytes
-- column: steps steps; different steps in the run's logs; null without a log
-- column: exchanges steps; how often the exchange takes place: steps; in asynchronous runs the mean number of steps in a worker's log
-- column: expected_bytes bytes; model_bytes times total_factor times exchanges
-- column: payload_bytes bytes; payload inside steps of the pairs that carry the exchange
-- column: spilled_bytes bytes; payload of these pairs outside the sender's steps that belongs to them (spilled_payload); negative where more is inside that does not; null without flow_windows or hosts
-- column: startup_bytes bytes; payload of all pairs before the first step, which is no spill, and startup_in_steps_bytes
-- column: startup_in_steps_bytes bytes; start-up in payload_bytes + spilled_bytes: what a receiver gets in its first step more than in each of the next ones, where that is half a model or more; null where no receiver's next steps are equal; with asynchronous servers what a worker gets more than it sends
-- column: retransmitted_bytes bytes; part of payload_bytes and spilled_bytes that was sent again; null where it is not TCP
-- column: framing_bytes bytes; headers of the communication library in them; null where they cannot be counted
-- column: missed_bytes bytes; what these pairs sent, as sequence or acknowledgement numbers prove, and was not captured (flows.missed_bytes), by the part of each flow's payload that is inside steps; null where no numbers are known
-- column: unexplained_bytes bytes; payload_bytes + spilled_bytes - startup_in_steps_bytes - retransmitted_bytes - framing_bytes + missed_bytes - expected_bytes, without what is null; negative where payload is missing
-- column: unexplained_share ratio; unexplained_bytes over expected_bytes
-- column: not_estimated; the explanations that are null or partial, and why; they are in unexplained_bytes; null where there is none
-- column: control_bytes bytes; payload inside steps of all other pairs
-- column: header_bytes bytes; headers and packets without payload, inside steps
-- column: wire_bytes bytes; payload_bytes + control_bytes + header_bytes: all wire bytes inside steps
-- column: flagged; whether unexplained_share is beyond most_unexplained, either way; null where nothing can be compared
-- column: problem; what is missing for a comparison; null where nothing is
-- column: hosts hosts; hosts that take part in the exchange
-- column: level; level of topology_edges of the pairs that carry it
-- column: total_factor ratio; payload of a step over all pairs, over the bytes that a step exchanges (exchange_laws)
-- All steps are taken together, for the pairs that carry the exchange (topology_edges; in pair averaging all pairs with
-- payload). No explanation is computed from what it explains: spill follows from the logs, start-up from the receivers'
-- next steps or the other direction, retransmission from sequence numbers (in runs that were not captured, by the part of each flow's payload
-- that is inside steps), framing from the other direction of the pairs. gloo sends two headers of 48 bytes with each
-- message and gets one back (NOTIFY_SEND_READY, that of the data, NOTIFY_RECV_READY; gloo/transport/tcp/pair.h and
-- pair.cc). So where the other direction carries nothing but headers, framing is twice its payload inside steps. In steps
-- in which a pair has over four times its usual answers, as of an all-gather behind some steps, the usual ones count. The
-- framing of other libraries is not known. What a host gets in its first step is start-up only where each of its next
-- ones (first_steps_received) gets less: a broadcast, or the first model of an asynchronous worker. A worker of an
-- asynchronous parameter server sends a gradient and gets a model in each step: the models that it gets beyond its
-- gradients are start-up, whatever its steps and the windows are. Nothing is flagged
-- where the law may be that of another exchange (a pipeline, a mixture of experts): a topology is declared that is not
-- in topology_words, or none is and the payload is below half or above twice the law of the inferred one. Nor where a
-- run was interrupted, so that a part of an exchange was sent: in its planned steps, or by a fault made on purpose. Nor where
-- workers of a declared parameter server have no log, and the others do not show whether workers wait for each other.
-- Nor where hosts have several ranks (runs.ranks_per_host), but for rings, stars and two hosts: the law is then that of one rank a host.
WITH thresholds AS (
    SELECT 0.5 AS least_startup,  -- of model_bytes: a handed-out model is one, or the share of one
           2 AS least_following,  -- steps after the first one that show what is usual
           48 AS header_size,     -- of gloo, bytes
           0.5 AS whole_share,    -- of the steps of all pairs: in more than these the other direction has whole headers only
           4 AS most_answers      -- times the usual of a pair's steps: more than so many headers have other data beside them
), laws AS MATERIALIZED (
    FROM exchange_laws
), shapes AS (
    SELECT DISTINCT run_id, topology, level, hosts
    FROM laws
), pairs AS MATERIALIZED (
    SELECT run_id, src_ip, dst_ip
    FROM topology_edges
    JOIN shapes USING (run_id, level)
    WHERE topology <> 'pair_averaging'
    UNION ALL
    SELECT DISTINCT run_id, src_ip, dst_ip
    FROM flows
    JOIN shapes USING (run_id)
    WHERE topology = 'pair_averaging' AND payload_bytes > 0
), step_counts AS (
    SELECT run_id, steps
    FROM logged_steps
), worker_logs AS (
    SELECT DISTINCT s.run_id, worker
    FROM steps AS s
    WHERE (run_id, worker) NOT IN (SELECT (run_id, label) FROM hosts JOIN parameter_servers USING (run_id, host_ip) WHERE label IS NOT NULL)
), asynchronous AS (
    SELECT run_id, worker_steps
    FROM step_synchrony
    WHERE is_asynchronous
), flow_sums AS (
    SELECT run_id, flow_id,
           coalesce(sum(payload_bytes) FILTER (position = 'during'), 0) AS payload,
           coalesce(sum(payload_bytes) FILTER (position = 'before'), 0) AS before_payload,
           coalesce(sum(wire_bytes) FILTER (position = 'during'), 0) AS wire,
           coalesce(sum(retransmitted_bytes) FILTER (position = 'during'), 0) AS again,
           count(retransmitted_bytes) > 0 AS is_captured
    FROM step_flows
    GROUP BY run_id, flow_id
), pair_sums AS (
    SELECT run_id, src_ip, dst_ip, sum(payload) AS payload, sum(before_payload) AS before_payload, sum(wire) AS wire,
           sum(CASE WHEN is_captured THEN again ELSE retransmitted_bytes * payload / nullif(payload_bytes, 0) END)
               FILTER (protocol = 6) AS again,
           sum(missed_bytes * payload / nullif(payload_bytes, 0)) AS missed
    FROM flow_sums
    JOIN flows USING (run_id, flow_id)
    GROUP BY run_id, src_ip, dst_ip
), placed AS (
    SELECT s.*, early_bytes, early_bytes + late_bytes AS spilled, again + coalesce(retransmitted_bytes, 0) AS repeated,
           p.run_id IS NOT NULL AS is_matched,
           b.run_id IS NOT NULL AS is_way_back
    FROM pair_sums AS s
    LEFT JOIN pairs AS p ON p.run_id = s.run_id AND p.src_ip = s.src_ip AND p.dst_ip = s.dst_ip
    LEFT JOIN pairs AS b ON b.run_id = s.run_id AND b.src_ip = s.dst_ip AND b.dst_ip = s.src_ip
    LEFT JOIN spilled_payload AS o ON o.run_id = s.run_id AND o.src_ip = s.src_ip AND o.dst_ip = s.dst_ip
), run_sums AS (
    SELECT run_id, coalesce(sum(payload) FILTER (is_matched), 0) AS payload, sum(spilled) FILTER (is_matched) AS spilled,
           sum(before_payload) - coalesce(sum(early_bytes), 0) AS before_payload,
           sum(repeated) FILTER (is_matched) AS repeated, sum(missed) FILTER (is_matched) AS missed,
           CASE WHEN NOT coalesce(bool_or(is_way_back) FILTER (is_matched), true)
                THEN coalesce(sum(payload - coalesce(again, 0)) FILTER (is_way_back), 0) END AS answers,
           coalesce(sum(payload) FILTER (NOT is_matched), 0) AS control, sum(wire) AS wire
    FROM placed
    GROUP BY run_id
), answered AS (  -- in each step, on the pairs' other direction
    SELECT s.run_id, f.src_ip, f.dst_ip, step, sum(s.payload_bytes - coalesce(s.retransmitted_bytes, 0)) AS payload
    FROM step_flows AS s
    JOIN flows AS f ON f.run_id = s.run_id AND f.flow_id = s.flow_id
    JOIN pairs AS p ON p.run_id = s.run_id AND p.src_ip = f.dst_ip AND p.dst_ip = f.src_ip
    WHERE position = 'during' AND s.payload_bytes > 0 AND s.run_id IN (SELECT run_id FROM runs WHERE lower(backend) = 'gloo')
    GROUP BY ALL
), notified AS (
    SELECT run_id, avg((payload % header_size = 0)::INTEGER) > any_value(whole_share) AS has_notices,
           coalesce(sum(payload - usual) FILTER (payload > most_answers * usual), 0) AS other_payload
    FROM (SELECT *, median(payload) OVER (PARTITION BY run_id, src_ip, dst_ip) AS usual FROM answered)
    CROSS JOIN thresholds
    GROUP BY run_id
), unknown_spill AS (
    SELECT run_id, count(*) FILTER (worker IS NULL) AS without_log, count(*) AS all_hosts,
           run_id IN (SELECT run_id FROM steps WHERE start_source = 'estimated') AS has_estimated_start
    FROM training_spans
    JOIN run_hosts USING (run_id, host_ip)
    GROUP BY run_id
), unlike_directions AS (  -- what an asynchronous worker gets from its servers more than it sends to them: models
    SELECT run_id, CASE WHEN s.host_ip = src_ip THEN dst_ip ELSE src_ip END AS worker_ip,
           sum(CASE WHEN s.host_ip = src_ip THEN 1 ELSE -1 END
               * (payload + coalesce(spilled, 0) - coalesce(repeated, 0) + coalesce(missed, 0))) AS startup
    FROM placed
    JOIN parameter_servers AS s USING (run_id)
    JOIN asynchronous USING (run_id)
    WHERE is_matched AND s.host_ip IN (src_ip, dst_ip)
    GROUP BY ALL
), received AS (
    SELECT run_id, dst_ip, step, sum(payload_bytes) AS payload
    FROM first_steps_received
    JOIN pairs USING (run_id, src_ip, dst_ip)
    WHERE run_id NOT IN (SELECT run_id FROM unlike_directions)
    GROUP BY run_id, dst_ip, step
), receivers AS (
    SELECT run_id, dst_ip, max(payload) FILTER (step = 0) AS first_payload, median(payload) FILTER (step > 0) AS usual,
           max(payload) FILTER (step > 0) - min(payload) FILTER (step > 0) AS spread,
           count(*) FILTER (step > 0) AS following
    FROM received
    GROUP BY run_id, dst_ip
), judged AS (
    SELECT run_id, first_payload - usual AS startup, following >= least_following AND spread < least_startup * model_bytes AS is_usual,
           startup >= least_startup * model_bytes AS is_startup
    FROM receivers
    JOIN runs USING (run_id)
    CROSS JOIN thresholds
    WHERE model_bytes > 0
    UNION ALL
    SELECT run_id, startup, true AS is_usual, startup >= least_startup * model_bytes AS is_startup
    FROM unlike_directions
    JOIN runs USING (run_id)
    CROSS JOIN thresholds
    WHERE model_bytes > 0
), startups AS (
    SELECT run_id, sum(CASE WHEN is_startup THEN startup ELSE 0 END) FILTER (is_usual) AS startup,
           count(*) FILTER (NOT is_usual) AS unequal, count(*) AS receivers
    FROM judged
    GROUP BY run_id
), explained AS (
    SELECT run_id, run_sums.* EXCLUDE (run_id), startup, round(spilled) AS spill, round(repeated) AS again,
           round(missed) AS missing,
           CASE WHEN lower(backend) = 'gloo' AND has_notices THEN round(2 * (answers - other_payload)) END AS framing,
           payload + coalesce(spill, 0) - coalesce(round(startup), 0) - coalesce(again, 0) - coalesce(framing, 0)
               + coalesce(missing, 0) AS exchanged,
           concat_ws('; ',
               CASE WHEN spilled IS NULL THEN 'spill: no flow_windows or no hosts'
                    WHEN without_log > 0 THEN format('spill: {} of {} hosts have no log', without_log, all_hosts) END,
               CASE WHEN has_estimated_start THEN 'spill: the start of the first step is estimated' END,
               CASE WHEN startup IS NULL THEN 'start-up in steps: no receiver has equal steps after its first one'
                    WHEN unequal > 0 THEN format('start-up in steps: {} of {} receivers have unequal steps', unequal, receivers) END,
               CASE WHEN repeated IS NULL THEN 'retransmission: only TCP shows it' END,
               CASE WHEN backend IS NULL THEN 'framing: the library is not declared'
                    WHEN lower(backend) <> 'gloo' THEN format('framing: that of {} is not known', backend)
                    WHEN answers IS NULL THEN 'framing: both directions carry the exchange, so that messages cannot be counted'
                    WHEN framing IS NULL THEN 'framing: the other direction carries more than the headers of messages'
               END) AS not_estimated
    FROM run_sums
    JOIN runs USING (run_id)
    LEFT JOIN startups USING (run_id)
    LEFT JOIN notified USING (run_id)
    LEFT JOIN unknown_spill USING (run_id)
), compared AS (
    SELECT run_id, law, total_factor,
           CASE WHEN law = 'one worker in each step' THEN steps ELSE coalesce(worker_steps, steps) END AS exchanges,
           round(model_bytes * total_factor * exchanges) AS expected, exchanged - expected AS unexplained,
           CASE WHEN runs.topology IS NULL THEN NOT exchanged BETWEEN expected / 2 AND 2 * expected
                ELSE NOT EXISTS (FROM topology_words
                                 WHERE regexp_full_match(lower(replace(runs.topology, '-', '_')), pattern)) END AS is_guess
    FROM explained
    JOIN runs USING (run_id)
    JOIN step_counts USING (run_id)
    JOIN laws USING (run_id)
    LEFT JOIN asynchronous USING (run_id)
    WHERE model_bytes > 0 AND law IS NOT NULL
    QUALIFY row_number() OVER (PARTITION BY run_id ORDER BY abs(unexplained), law) = 1
), several_ranks AS (  -- without a law for them
    SELECT run_id
    FROM runs
    JOIN shapes AS s USING (run_id)
    WHERE ranks_per_host > 1 AND s.topology NOT IN ('ring', 'star') AND NOT (s.topology = 'unknown' AND s.hosts = 2)
), least_steps AS (  -- of the worker that did fewest
    SELECT run_id, min(steps) AS steps
    FROM (SELECT run_id, worker, count(*) AS steps FROM steps GROUP BY ALL)
    GROUP BY run_id
), interrupted AS (
    SELECT run_id, coalesce(s.steps < planned_steps, false)
                   OR run_id IN (SELECT run_id FROM events WHERE kind IN ('process_killed', 'host_killed', 'restart')) AS is_interrupted
    FROM runs
    LEFT JOIN least_steps AS s USING (run_id)
), unknown_exchanges AS (  -- workers of a declared server without a log: they may have done more steps than the others, or fewer
    SELECT h.run_id, format('whether workers wait for each other is unknown: {} of {} have a log', count(l.worker), count(*)) AS unknown
    FROM run_hosts AS h
    LEFT JOIN worker_logs AS l ON l.run_id = h.run_id AND l.worker = h.label
    JOIN runs AS r ON r.run_id = h.run_id
    JOIN topology_words AS t ON regexp_full_match(lower(replace(r.topology, '-', '_')), pattern)
    WHERE (h.run_id, h.host_ip) NOT IN (SELECT (run_id, host_ip) FROM parameter_servers)
      AND t.topology IN ('parameter_server', 'sharded_parameter_server')
      AND h.run_id NOT IN (SELECT run_id FROM hosts WHERE role = 'chief')
      AND h.run_id NOT IN (SELECT run_id FROM step_synchrony WHERE is_asynchronous IS NOT NULL)
    GROUP BY h.run_id
    HAVING count(l.worker) < count(*)
), first_laws AS (  -- where nothing can be compared
    SELECT run_id, arg_max(law, (total_factor, law)) AS first_law, max(total_factor) AS first_factor
    FROM laws
    GROUP BY run_id
)
SELECT run_id, shapes.topology, coalesce(law, first_law) AS law, model_bytes, step_counts.steps, exchanges::DOUBLE AS exchanges,
       expected::BIGINT AS expected_bytes, CASE WHEN u.problem IS NULL THEN payload END::BIGINT AS payload_bytes,
       spill::BIGINT AS spilled_bytes,
       CASE WHEN u.problem IS NULL THEN before_payload + coalesce(round(startup), 0) END::BIGINT AS startup_bytes,
       round(startup)::BIGINT AS startup_in_steps_bytes, again::BIGINT AS retransmitted_bytes,
       framing::BIGINT AS framing_bytes, missing::BIGINT AS missed_bytes, unexplained::BIGINT AS unexplained_bytes, unexplained / expected AS unexplained_share,
       CASE WHEN expected IS NOT NULL THEN nullif(not_estimated, '') END AS not_estimated, CASE WHEN u.problem IS NULL THEN control END::BIGINT AS control_bytes,
       CASE WHEN u.problem IS NULL THEN wire - payload - control END::BIGINT AS header_bytes, wire::BIGINT AS wire_bytes,
       CASE WHEN spill IS NOT NULL AND NOT is_guess AND NOT is_interrupted AND unknown IS NULL AND several_ranks.run_id IS NULL
            THEN abs(unexplained) > $most_unexplained * expected END AS flagged,
       CASE WHEN u.problem IS NOT NULL THEN u.problem
            WHEN coalesce(law, first_law) IS NULL THEN 'topology unknown'
            WHEN step_counts.steps IS NULL THEN 'no training log'
            WHEN coalesce(model_bytes, 0) <= 0 THEN 'model_bytes unknown'
            WHEN expected IS NULL THEN 'no traffic in steps'
            WHEN spill IS NULL THEN 'no flow_windows or no hosts'
            WHEN is_interrupted THEN 'steps were interrupted: planned_steps were not done, or processes were killed'
            WHEN unknown IS NOT NULL THEN unknown
            WHEN several_ranks.run_id IS NOT NULL THEN 'hosts have ' || ranks_per_host || ' ranks: only rings, stars and two hosts have a law for these'
            WHEN is_guess THEN 'the topology is inferred, and none that is known is declared' END AS problem,
       hosts, level, coalesce(total_factor, first_factor) AS total_factor
FROM runs
LEFT JOIN shapes USING (run_id)
LEFT JOIN step_counts USING (run_id)
LEFT JOIN explained USING (run_id)
LEFT JOIN compared USING (run_id)
LEFT JOIN first_laws USING (run_id)
LEFT JOIN interrupted USING (run_id)
LEFT JOIN unknown_exchanges USING (run_id)
LEFT JOIN several_ranks USING (run_id)
LEFT JOIN unknown_payload AS u USING (run_id)
ORDER BY run_id
