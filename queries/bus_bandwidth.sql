-- question: How fast is the exchange of each step: for the algorithm, for the bus, and on the busiest host's link?
-- subject: collectives
-- row: a run, a step and a way of measuring the time; one row with null step for a run without an exchange in steps
-- inputs: runs, hosts, steps, conservation, collective_completion
-- answer: step, bus_gbit_per_s, link_gbit_per_s, problem
-- column: run_id from hosts
-- column: step
-- column: measured_by; source of exchange_ms: events (of the program) or wire (collective_completion); a step has a row for each that is known
-- column: algorithm; inferred topology
-- column: law; law of the exchange, as in exchange_laws
-- column: vantage; senders: each packet counts where it was sent
-- column: hosts hosts; N, hosts that take part in the exchange
-- column: exchanged_bytes bytes; S: payload of the step on the flows that carry the exchange, less what was sent again, over the law's factor
-- column: exchange_ms ms; t: time that the exchange takes, pauses included; null with a problem
-- column: algorithm_gbit_per_s Gbit/s; S over t: nccl-tests' algbw
-- column: bus_factor ratio; 2(n-1)/n for an all-reduce of n ranks: the hosts times runs.ranks_per_host; null where nccl-tests has none
-- column: bus_gbit_per_s Gbit/s; algorithm_gbit_per_s times bus_factor: nccl-tests' busbw
-- column: link_gbit_per_s Gbit/s; wire bytes that the busiest host sent, or received, on these flows in the step, over t
-- column: moving_ms ms; base windows of the exchange in which the busiest host sent or received payload on these flows
-- column: moving_bus_gbit_per_s Gbit/s; S over moving_ms, times bus_factor: the rate without pauses
-- column: window_ms ms; length of a base window, the resolution of moving_ms and of exchange_ms by the wire
-- column: problem; why exchange_ms or bus_factor is null; null where neither is
-- The definitions are those of nccl-tests (doc/PERFORMANCE.md): algbw = S/t, busbw = algbw * 2(n-1)/n for an all-reduce
-- with any algorithm of sends and receives, so that different numbers of workers compare. t is from the last worker's
-- start to the last worker's end where events say when they communicate, and on the wire the shortest interval with 99%
-- of the step's payload on the flows that carry the exchange; while moving, stalls vanish. What is sent before the last
-- worker starts is in S: so by events a rate may exceed the link's.
-- S does not depend on a declared model size; the law is the one that conservation chose. nccl-tests has no factor for
-- pair averaging and for parameter servers that are not workers too: a server is no rank. A star without a declared
-- server counts as an all-reduce of all its hosts.
-- Rates are of payload, but for link_gbit_per_s, which has headers; only in a ring is bus_gbit_per_s the rate of a wire.
WITH laws AS MATERIALIZED (
    SELECT run_id, topology, hosts, law, total_factor
    FROM conservation()
), servers AS (
    SELECT DISTINCT run_id
    FROM hosts
    WHERE role = 'parameter_server'
), factors AS (
    SELECT run_id, l.topology, l.hosts, l.hosts * coalesce(ranks_per_host, 1) AS ranks, law, total_factor,
           CASE WHEN law IS NULL THEN 'topology unknown'
                WHEN run_id NOT IN (SELECT run_id FROM steps) THEN 'no training log' END AS run_problem,
           CASE WHEN l.topology = 'pair_averaging' THEN 'nccl-tests has no bus factor for pair averaging'
                WHEN run_id IN (FROM servers)
                     OR law IN ('fewer servers than workers', 'more servers than workers', 'one worker in each step', 'every rank in each step')
                     OR (l.topology = 'star' AND runs.topology = 'parameter_server')
                THEN 'nccl-tests has no bus factor for parameter servers' END AS factor_problem
    FROM laws AS l
    JOIN runs USING (run_id)
), measured AS MATERIALIZED (
    SELECT run_id, step, measured_by, payload_bytes - coalesce(retransmitted_bytes, 0) AS payload, exchange_ms, link_bytes,
           moving_ms, window_ms, problem
    FROM collective_completion
)
SELECT run_id, step, measured_by, topology AS algorithm, law, 'senders' AS vantage, hosts,
       round(payload / total_factor)::BIGINT AS exchanged_bytes, exchange_ms,
       8e-6 * (payload / total_factor) / nullif(exchange_ms, 0) AS algorithm_gbit_per_s,
       CASE WHEN law IS NOT NULL AND factor_problem IS NULL THEN 2 * (ranks - 1) / ranks END AS bus_factor,
       algorithm_gbit_per_s * bus_factor AS bus_gbit_per_s,
       8e-6 * link_bytes / nullif(exchange_ms, 0) AS link_gbit_per_s,
       moving_ms,
       8e-6 * (payload / total_factor) / nullif(moving_ms, 0) * bus_factor AS moving_bus_gbit_per_s,
       window_ms,
       coalesce(run_problem, CASE WHEN step IS NULL THEN 'no windows of the exchange in a step' END,
                nullif(concat_ws('; ', problem, factor_problem), '')) AS problem
FROM factors
LEFT JOIN measured USING (run_id)
ORDER BY run_id, step, measured_by
