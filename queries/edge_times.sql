-- question: How long does each host send to each other for a collective, and how long where it goes as on similar links?
-- subject: delays
-- row: a run, a job, a step, a collective, and a sender and receiver of its data
-- inputs: runs, flows, messages, flow_windows, job_flows, step_collectives, collective_transfers
-- answer: step, src_ip, dst_ip, excess_ms
-- column: run_id from collective_transfers
-- column: job from collective_transfers
-- column: step
-- column: position
-- column: src_ip
-- column: dst_ip
-- column: payload_bytes bytes; of its messages with data for the collective
-- column: gbit_per_s Gbit/s; first quartile over stretches of the stream, each from its first to its last packet: bursts that a queue or bucket lets pass at once hardly count. Null where it sends single packets, or less than 16 KiB at a time
-- column: usual_gbit_per_s Gbit/s; median over similar links, each with all its steps: those that carry as much in a step (within 20%), whose sender has as many receivers and whose receiver as many senders. Of a link without two like it its own median. At most the run's bandwidth_mbit, and that where no link tells a rate. Where it is not declared, and a queue or shaper behind the point of capture takes bursts, this is above the link's rate
-- column: is_shared; whether its sender has another receiver, or its receiver another sender: they share a host's rate
-- column: sending_ms ms; payload_bytes at gbit_per_s, or at usual_gbit_per_s where that is null
-- column: excess_ms ms; sending_ms beyond the time at usual_gbit_per_s; negative where it was faster
-- column: retransmitted_bytes bytes; payload that was sent again, RoCE: psn_repeated_bytes; null where windows do not tell
-- column: stalled_ms ms; pauses of a flow that end with a retransmission behind which it goes on, of the flow that pauses longest
-- Behind a loss a flow goes on once the lost bytes are there: within a quarter of the pause, or two windows, or what follows is sent again, too. Where it
-- has nothing more to send, TCP probes for an answer (RFC 8985, tail loss probe): one segment is sent again, mostly without a loss, and that is no cause of the pause.
-- A stretch has 128 KiB, on a ring no more than half of the bytes of a round. The first step is left out of what is usual: in it
-- connections are new. The longest pause between two messages of a stretch is no time of the link where its sender had nothing on the way (it
-- waits for a CPU, or TCP paces it behind an idle time): in TCP, its receiver has answered, then sends nothing for half of the pause or more, and
-- nothing is sent again at the end. As many of the longest such pauses of a flow count as its receiver closed its window. That of a queue or shaper
-- comes back in most stretches: so the pause must take ten times as long as the link's median stretch.
WITH thresholds AS (
    SELECT 64 AS most_control_bytes, 131072 AS most_stretch_bytes, 16384 AS least_bytes, 0.2 AS as_much, 3 AS least_links,
           10 AS times_longer,                     -- a pause, than what is usual for the stretch
           9000 AS most_probe_bytes,               -- one segment, of jumbo frames
           2 AS soon_windows, 0.25 AS soon_share   -- of the pause: what was lost holds up the data behind it no longer
), stretched AS (
    SELECT run_id, job, "position",
           CASE WHEN algorithm IN ('ring', 'rings') THEN 4 * (len(string_split(hosts, ',')) - 1) ELSE 1 END AS pieces
    FROM step_collectives
), transfers AS MATERIALIZED (  -- what two collectives of a step share is the first one's, and not either's by chance
    FROM collective_transfers
    QUALIFY row_number() OVER (PARTITION BY run_id, flow_id, first_ns ORDER BY job, step, "position") = 1
), sent AS (
    SELECT t.run_id, t.job, t.step, t."position", t.src_ip, t.dst_ip, t.flow_id, t.bytes AS transfer_bytes, m.first_ns,
           m.first_ns + duration_ns AS last_ns, m.bytes, m.bytes / packets AS packet_bytes,
           stream_offset - min(stream_offset) OVER (PARTITION BY t.run_id, t.job, t.step, t."position", t.flow_id) AS stream_offset
    FROM messages AS m
    CROSS JOIN thresholds
    ASOF JOIN transfers AS t
      ON m.run_id = t.run_id AND m.flow_id = t.flow_id AND m.first_ns >= t.first_ns
    WHERE m.first_ns <= t.last_ns AND m.bytes > most_control_bytes
), paused AS MATERIALIZED (
    SELECT w.*, window_start_ns - lag(window_start_ns + window_ns) OVER of_flow AS pause_ns,
           lead(CASE WHEN payload_bytes > 0 THEN window_start_ns END IGNORE NULLS) OVER of_flow - window_start_ns - window_ns AS next_ns,
           lead(CASE WHEN payload_bytes > 0 THEN retransmitted_bytes END IGNORE NULLS) OVER of_flow AS next_bytes
    FROM (SELECT run_id, flow_id, window_start_ns, window_ns, payload_bytes,
                 retransmitted_bytes + coalesce(psn_repeated_bytes, 0) AS retransmitted_bytes
          FROM flow_windows
          SEMI JOIN job_flows USING (run_id, flow_id)) AS w
    WINDOW of_flow AS (PARTITION BY run_id, flow_id ORDER BY window_start_ns)
), cut AS (
    SELECT sent.*, stream_offset // least(most_stretch_bytes, greatest(transfer_bytes // pieces, 1)) AS stretch,
           first_ns - lag(last_ns) OVER of_stretch AS pause_ns, lag(packet_bytes) OVER of_stretch AS before_bytes
    FROM sent
    JOIN stretched USING (run_id, job, "position")
    CROSS JOIN thresholds
    WINDOW of_stretch AS (PARTITION BY run_id, job, step, "position", src_ip, dst_ip, flow_id, stretch ORDER BY first_ns, last_ns)
), timed AS MATERIALIZED (
    SELECT run_id, job, step, "position", src_ip, dst_ip, flow_id, stretch, sum(bytes) AS payload_bytes,
           sum(bytes) - arg_max(packet_bytes, (last_ns, first_ns)) AS moved_bytes, max(last_ns) - min(first_ns) AS moving_ns,
           CASE WHEN moved_bytes >= least_bytes THEN moved_bytes / nullif(moving_ns, 0) END AS rate,
           max(pause_ns) AS pause_ns,
           arg_max(struct_pack(before_bytes, first_ns), (pause_ns, first_ns)) FILTER (pause_ns IS NOT NULL) AS longest
    FROM cut
    CROSS JOIN thresholds
    GROUP BY run_id, job, step, "position", src_ip, dst_ip, flow_id, stretch, least_bytes
), long AS (
    SELECT t.*, reverse_flow_id, longest.first_ns AS resumed_ns
    FROM timed AS t
    JOIN (SELECT run_id, job, src_ip, dst_ip, median(rate) AS rate FROM timed GROUP BY ALL) AS o USING (run_id, job, src_ip, dst_ip)
    JOIN flows USING (run_id, flow_id)
    CROSS JOIN thresholds
    WHERE protocol = 6 AND pause_ns > times_longer * moved_bytes / o.rate
), idle AS (  -- nothing is on the way in these pauses
    SELECT l.*
    FROM long AS l
    JOIN flows AS r ON r.run_id = l.run_id AND r.flow_id = l.reverse_flow_id
    ASOF JOIN (SELECT w.* FROM flow_windows AS w SEMI JOIN long AS s ON w.run_id = s.run_id AND w.flow_id = s.reverse_flow_id) AS a
      ON a.run_id = l.run_id AND a.flow_id = l.reverse_flow_id AND l.resumed_ns >= a.window_start_ns + a.window_ns
    WHERE a.window_start_ns + a.window_ns BETWEEN l.resumed_ns - l.pause_ns AND l.resumed_ns - l.pause_ns // 2
      AND NOT EXISTS (FROM paused AS w
                      WHERE w.run_id = l.run_id AND w.flow_id = l.flow_id AND w.retransmitted_bytes > 0
                        AND l.resumed_ns BETWEEN w.window_start_ns AND w.window_start_ns + w.window_ns + l.pause_ns)
    -- the receiver may have closed its window in so many
    QUALIFY row_number() OVER (PARTITION BY l.run_id, l.flow_id ORDER BY l.pause_ns DESC, l.resumed_ns) > coalesce(r.zero_window_packets, 0)
), stretches AS (
    SELECT t.* REPLACE (CASE WHEN i.flow_id IS NULL THEN t.rate
                             WHEN t.moved_bytes - t.longest.before_bytes >= least_bytes
                             THEN (t.moved_bytes - t.longest.before_bytes) / nullif(t.moving_ns - t.pause_ns, 0) END AS rate)
    FROM timed AS t
    CROSS JOIN thresholds
    LEFT JOIN idle AS i USING (run_id, job, step, "position", flow_id, stretch)
), edges AS MATERIALIZED (
    SELECT run_id, job, step, "position", src_ip, dst_ip, sum(payload_bytes)::BIGINT AS payload_bytes, quantile_cont(rate, 0.25) AS rate
    FROM stretches
    GROUP BY ALL
), links AS MATERIALIZED (
    SELECT run_id, job, src_ip, dst_ip, sum(payload_bytes) / count(DISTINCT step) AS step_bytes, quantile_cont(rate, 0.25) AS rate,
           median(rate) AS own_rate, count(*) OVER (PARTITION BY run_id, job, src_ip) AS receivers,
           count(*) OVER (PARTITION BY run_id, job, dst_ip) AS senders
    FROM stretches
    WHERE step > 0
    GROUP BY run_id, job, src_ip, dst_ip
), usual AS (
    SELECT l.run_id, l.job, l.src_ip, l.dst_ip, any_value(l.receivers > 1 OR l.senders > 1) AS is_shared,
           least(CASE WHEN count(o.rate) >= any_value(least_links) THEN median(o.rate) ELSE any_value(l.own_rate) END,
                 any_value(bandwidth_mbit) / 8e3) AS rate  -- bytes a nanosecond
    FROM links AS l
    JOIN runs USING (run_id)
    CROSS JOIN thresholds
    LEFT JOIN links AS o
      ON l.run_id = o.run_id AND l.job = o.job AND l.receivers = o.receivers AND l.senders = o.senders
     AND abs(o.step_bytes - l.step_bytes) <= as_much * l.step_bytes AND o.rate > 0 AND l.rate > 0
    GROUP BY l.run_id, l.job, l.src_ip, l.dst_ip
), stalls AS (
    SELECT t.run_id, job, step, "position", src_ip, dst_ip, t.flow_id, sum(retransmitted_bytes)::BIGINT AS retransmitted_bytes,
           coalesce(sum(pause_ns) FILTER (retransmitted_bytes > 0 AND window_start_ns - pause_ns >= first_ns
                                          AND (payload_bytes > retransmitted_bytes OR retransmitted_bytes > most_probe_bytes OR next_bytes > 0
                                               OR next_ns <= greatest(soon_windows * window_ns, soon_share * pause_ns))), 0) / 1e6 AS stalled_ms
    FROM paused AS p
    CROSS JOIN thresholds
    ASOF JOIN transfers AS t
      ON p.run_id = t.run_id AND p.flow_id = t.flow_id AND p.window_start_ns >= t.first_ns  -- its last segment may be sent again later
    GROUP BY ALL
), stalled AS (
    SELECT run_id, job, step, "position", src_ip, dst_ip, sum(retransmitted_bytes)::BIGINT AS retransmitted_bytes, max(stalled_ms) AS stalled_ms
    FROM stalls
    GROUP BY ALL
)
SELECT run_id, job, step, "position", src_ip, dst_ip, payload_bytes, edges.rate * 8 AS gbit_per_s, usual.rate * 8 AS usual_gbit_per_s, is_shared,
       payload_bytes / coalesce(edges.rate, usual.rate) / 1e6 AS sending_ms, sending_ms - payload_bytes / usual.rate / 1e6 AS excess_ms,
       retransmitted_bytes, coalesce(stalled_ms, 0) AS stalled_ms
FROM edges
LEFT JOIN usual USING (run_id, job, src_ip, dst_ip)
LEFT JOIN stalled USING (run_id, job, step, "position", src_ip, dst_ip)
ORDER BY run_id, job, step, "position", src_ip, dst_ip
