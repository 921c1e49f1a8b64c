-- question: Do the collectives on the wire and those that profilers recorded agree, one by one?
-- subject: timelines
-- row: a run, a profiler and a collective, of the wire or of the profiler
-- inputs: profiler_collectives, profiler_clocks, step_collectives, collective_times, collective_transfers
-- column: run_id
-- column: profiler from profiler_collectives
-- column: job; job of the collective on the wire; null where the wire has none
-- column: step; its step
-- column: position; its position in the step
-- column: process_group; group of the profiler; null where it has none, or does not name it
-- column: sequence; number of the profiler's collective in its group
-- column: wire_kind; kind on the wire
-- column: profiler_kind; kind by the profiler; several, separated by commas, where hosts differ
-- column: wire_bytes bytes; tensor_bytes of the wire
-- column: profiler_bytes bytes; by the profiler; the largest where hosts differ
-- column: wire_hosts hosts; hosts of the collective on the wire
-- column: profiler_hosts hosts; hosts of which the profiler has it
-- column: wire_start_ns ns since the epoch, UTC; first packet with data
-- column: profiler_start_ns ns since the epoch, UTC; first call, on the captures' clock
-- column: wire_end_ns ns since the epoch, UTC; last packet with data
-- column: profiler_end_ns ns since the epoch, UTC; last end, on the captures' clock; null where not known
-- column: wire_last_host; address of the host that entered last, by the wire
-- column: profiler_last_host; address of the host whose call came last
-- column: profiler_wait_ms ms; from the first call to the last one: how long the first host waited; null for one host
-- column: problem; what does not agree: only on the wire, only by the profiler, hosts without a call, another kind or size; null where all agrees
-- The profiler's times are shifted by profiler_clocks. A call belongs to the collective of which its host sends the first data
-- (or, where it only receives, gets the last) soonest behind it and before its next call of this size. The first choice has the same
-- size, the next one lies inside the call.
-- Sizes agree within 5%. Nothing is merged: what two sides say differently is in two columns.
WITH clocked AS (
    SELECT c.*, c.start_ns + offset_ns AS begin_ns, c.end_ns + offset_ns AS finish_ns,
           coalesce(uncertainty_ns, 0) + 1000 AS margin_ns
    FROM profiler_collectives AS c
    LEFT JOIN (SELECT run_id, profiler, worker, offset_ns, uncertainty_ns FROM profiler_clocks)
        USING (run_id, profiler, worker)
), at_hosts AS MATERIALIZED (
    SELECT run_id, job, step, "position", host_ip, kind, tensor_bytes, max(last_ns) AS last_ns,
           -- what a host gets may arrive before its call
           coalesce(min(first_ns) FILTER (src_ip = host_ip), max(last_ns)) AS first_ns
    FROM (SELECT *, unnest([src_ip, dst_ip]) AS host_ip FROM collective_transfers)
    JOIN step_collectives USING (run_id, job, "position")
    WHERE run_id IN (SELECT run_id FROM clocked)
    GROUP BY ALL
), followed AS (
    SELECT *, lead(begin_ns) OVER (PARTITION BY run_id, profiler, worker, bytes ORDER BY call) AS next_ns
    FROM clocked
    WHERE begin_ns IS NOT NULL
), pairs AS (
    SELECT c.run_id, profiler, worker, call, job, step, "position",
           abs(tensor_bytes - bytes) <= 0.05 * bytes IS TRUE AS is_size, w.kind = c.kind AS is_kind,
           abs(first_ns - begin_ns) AS distance_ns
    FROM followed AS c
    JOIN at_hosts AS w
      ON w.run_id = c.run_id AND w.host_ip = c.host_ip AND first_ns >= begin_ns - margin_ns
     AND first_ns < coalesce(next_ns, finish_ns + margin_ns, begin_ns + 60_000_000_000)
     AND (abs(tensor_bytes - bytes) <= 0.05 * bytes OR last_ns <= finish_ns + margin_ns)
), choices AS (
    SELECT *
    FROM pairs
    QUALIFY row_number() OVER (PARTITION BY run_id, profiler, worker, call
                               ORDER BY is_size DESC, is_kind DESC, distance_ns, job, step, "position") = 1
), matches AS (  -- of several calls that choose the same one, the nearest
    SELECT *
    FROM choices
    QUALIFY row_number() OVER (PARTITION BY run_id, profiler, worker, job, step, "position"
                               ORDER BY is_size DESC, is_kind DESC, distance_ns, call) = 1
), placed AS (
    SELECT c.*, m.job, m.step, m."position",
           -- calls without a collective on the wire are put together by their number, or else one by one
           CASE WHEN m.job IS NULL THEN coalesce(sequence::VARCHAR, worker || ' ' || call) END AS alone
    FROM clocked AS c
    LEFT JOIN matches AS m USING (run_id, profiler, worker, call)
), recorded AS (
    SELECT run_id, profiler, job, step, "position", alone, min(process_group) AS process_group, min(sequence) AS sequence,
           string_agg(DISTINCT kind, ',' ORDER BY kind) AS profiler_kind, max(bytes) AS profiler_bytes,
           count(DISTINCT bytes) AS sizes, count(DISTINCT worker) AS profiler_hosts, count(*) AS calls,
           min(begin_ns) AS profiler_start_ns, max(finish_ns) AS profiler_end_ns,
           arg_max(host_ip, (begin_ns, host_ip)) AS profiler_last_host,
           CASE WHEN count(DISTINCT worker) > 1 THEN (max(begin_ns) - min(begin_ns)) / 1e6 END AS profiler_wait_ms,
           bool_or(begin_ns IS NULL) AS is_unclocked
    FROM placed
    GROUP BY run_id, profiler, job, step, "position", alone, CASE WHEN alone IS NOT NULL THEN (process_group, kind) END
), on_wire AS (
    SELECT run_id, profiler, job, step, "position", kind AS wire_kind, tensor_bytes AS wire_bytes,
           len(string_split(hosts, ',')) AS wire_hosts, start_ns AS wire_start_ns, end_ns AS wire_end_ns,
           last_host AS wire_last_host
    FROM collective_times
    JOIN step_collectives USING (run_id, job, "position")
    JOIN (SELECT DISTINCT run_id, profiler FROM clocked) USING (run_id)
), joined AS (
    SELECT run_id, profiler, job, step, "position", r.* EXCLUDE (run_id, profiler, job, step, "position"),
           w.* EXCLUDE (run_id, profiler, job, step, "position")
    FROM on_wire AS w
    FULL JOIN recorded AS r USING (run_id, profiler, job, step, "position")
)
SELECT run_id, profiler, job, step, "position", process_group, sequence, wire_kind, profiler_kind, wire_bytes, profiler_bytes,
       wire_hosts, profiler_hosts, wire_start_ns, profiler_start_ns, wire_end_ns, profiler_end_ns, wire_last_host,
       profiler_last_host, profiler_wait_ms,
       nullif(concat_ws(
           '; ',
           CASE WHEN profiler_kind IS NULL THEN 'only on the wire' WHEN wire_kind IS NULL THEN 'only by the profiler' END,
           CASE WHEN wire_kind IS NULL AND is_unclocked THEN 'no clock offset' END,
           CASE WHEN profiler_hosts < wire_hosts THEN profiler_hosts || ' of ' || wire_hosts || ' hosts' END,
           CASE WHEN calls > profiler_hosts THEN 'recorded twice at a host' END,
           CASE WHEN profiler_kind <> wire_kind THEN 'kinds differ' WHEN profiler_kind LIKE '%,%' THEN 'hosts differ in kind' END,
           CASE WHEN abs(wire_bytes - profiler_bytes) > 0.05 * profiler_bytes THEN 'sizes differ' END,
           CASE WHEN sizes > 1 THEN 'hosts differ in size' END
       ), '') AS problem
FROM joined
ORDER BY run_id, profiler, job, step, "position", profiler_start_ns, process_group, sequence, profiler_kind,
         profiler_last_host
