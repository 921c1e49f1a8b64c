-- question: Which data checks have nothing, or not all that they need, to examine in a run, and why?
-- subject: runs
-- row: a run and a check
-- inputs: runs, captures, capture_ledger, flows, steps, conservation, run_capture_loss, unknown_payload, cut_headers
-- column: run_id from captures
-- column: check_name; name of the check (queries/checks/)
-- column: is_partial; whether the check examines something all the same; false: it can find nothing there
-- column: reason; what the run lacks
-- That a check without data returns no row says nothing about the run: `check` prints "not checked" in place of "ok".
WITH thresholds AS (
    SELECT 1_000_000 AS least_payload_bytes  -- as in the check both_vantages
), run_captures AS (
    SELECT run_id, count(*) AS captures, count(DISTINCT vantage_ip) FILTER (records > 0) AS captured_hosts,
           count(clock_offset_ns) AS clock_offsets
    FROM captures
    GROUP BY run_id
), run_flows AS (
    SELECT run_id, max(coalesce(payload_bytes, wire_bytes)) AS largest_payload
    FROM flows
    GROUP BY run_id
), facts AS (
    SELECT run_id, source, workers, bandwidth_mbit, clock_offset_estimate_ns, coalesce(captures, 0) AS captures,
           coalesce(captured_hosts, 0) AS captured_hosts, coalesce(clock_offsets, 0) AS clock_offsets, largest_payload,
           run_id IN (SELECT run_id FROM capture_ledger) AS has_ledger, run_id IN (SELECT run_id FROM steps) AS has_steps
    FROM runs
    LEFT JOIN run_captures USING (run_id)
    LEFT JOIN run_flows USING (run_id)
), reasons AS (
    SELECT run_id, unnest(['flow_parts', 'flow_references', 'both_vantages']) AS check_name, false AS is_partial, 'no flows' AS reason
    FROM facts
    WHERE largest_payload IS NULL
    UNION ALL
    SELECT run_id, 'both_vantages', true, problem
    FROM unknown_payload
    UNION ALL
    SELECT run_id, unnest(['negative_durations', 'orphan_keys']), false, 'no flows, captures or steps'
    FROM facts
    WHERE largest_payload IS NULL AND captures = 0 AND NOT has_steps
    UNION ALL
    SELECT run_id, unnest(['ledger', 'flows_match_ledger']), false, 'no captures'
    FROM facts
    WHERE NOT has_ledger
    UNION ALL
    SELECT run_id, 'both_vantages', false, 'one capture, and no flow of more than 1 MB of payload'
    FROM facts
    CROSS JOIN thresholds
    WHERE captures < 2 AND largest_payload <= least_payload_bytes
    UNION ALL
    SELECT run_id, 'host_clock', false, 'no captures of two hosts'
    FROM facts
    WHERE captured_hosts < 2
    UNION ALL
    SELECT run_id, 'host_clock', true, 'only whether the captures share time: no packet was captured at two hosts'
    FROM facts
    WHERE captured_hosts >= 2 AND clock_offsets = 0
    UNION ALL
    SELECT run_id, unnest(['log_clock', 'steps_overlap']), false, 'no training log'
    FROM facts
    WHERE NOT has_steps
    UNION ALL
    SELECT run_id, 'log_clock', true, 'only coarsely: the offset of the log''s clock cannot be estimated'
    FROM facts
    WHERE has_steps AND clock_offset_estimate_ns IS NULL
    UNION ALL
    SELECT run_id, 'missing_worker', false, 'the number of workers is not declared'
    FROM facts
    WHERE workers IS NULL
    UNION ALL
    SELECT run_id, 'link_rate', false,
           CASE source WHEN 'synthetic' THEN 'transfers of a synthetic run share no links' ELSE 'the rate of the links is not declared' END
    FROM facts
    WHERE bandwidth_mbit IS NULL OR source = 'synthetic'
    UNION ALL
    SELECT run_id, 'capture_loss', false,
           coalesce(u.problem, c.problem, 'no TCP flow whose sequence numbers are known, and no counter of a capture')
    FROM run_capture_loss()
    LEFT JOIN unknown_payload AS u USING (run_id)
    LEFT JOIN cut_headers AS c USING (run_id)
    WHERE flagged IS NULL
    UNION ALL
    SELECT run_id, 'capture_loss', true, c.problem
    FROM cut_headers AS c
    JOIN run_capture_loss() USING (run_id)
    WHERE flagged IS NOT NULL
    UNION ALL
    SELECT run_id, 'conservation', false,
           CASE WHEN problem = 'no training log' THEN 'no training log; query conservation --infer-steps takes the steps that the traffic shows' ELSE problem END
    FROM conservation()
    WHERE problem IS NOT NULL
)
SELECT run_id, check_name, is_partial, reason
FROM reasons
ORDER BY run_id, check_name
