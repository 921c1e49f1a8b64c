-- question: Which flows carry a run's training traffic, and in which of their windows?
-- subject: volume
-- row: a run and a large flow
-- inputs: flows
-- column: run_id
-- column: run_number; number of the run among all runs, from 1: grouping by text takes twice as long
-- column: flow_id
-- column: pair; number of the flow's directed pair of hosts within the run, from 1
-- column: weight; weight of the flow's directed pair of hosts in a mix (traffic_pauses), 0 to 996
-- column: least_mean_bytes bytes; payload per packet in a window of the flow, acknowledgements included, from which on it is training traffic
-- A flow is large with at least 2% of the payload of the run's largest: acknowledgements, remote shells, heartbeats and
-- rendezvous are not. Weights are whole, so that sums are exact, and a cubic function of the pair's number modulo a prime:
-- of a linear one, the two halves of a recursive doubling have the same sum.
-- A window in which a flow's packets carry less than 256 bytes of payload on average holds control messages only: workers
-- of Horovod tell each other every few milliseconds, on the connections of the gradients, what they are ready for.
WITH thresholds AS (
    SELECT 0.02 AS large_share,     -- of the payload of the run's largest flow: a flow from here on is large
           256 AS least_mean_bytes  -- payload per packet of a window with training traffic, at least
), numbered AS (
    SELECT run_id, flow_id, payload_bytes,
           max(payload_bytes) OVER (PARTITION BY run_id) AS largest_bytes,
           bool_and(payload_bytes IS NOT NULL) OVER (PARTITION BY run_id) AS is_known,  -- as in unknown_payload
           dense_rank() OVER (PARTITION BY run_id ORDER BY src_ip, dst_ip) AS pair
    FROM flows
)
SELECT run_id, dense_rank() OVER (ORDER BY run_id) AS run_number, flow_id, pair,
       (pair * pair % 997 * pair * 271 + pair * 618) % 997 AS weight,
       least_mean_bytes::BIGINT AS least_mean_bytes
FROM numbered
CROSS JOIN thresholds
WHERE is_known AND payload_bytes > 0 AND payload_bytes >= large_share * largest_bytes
ORDER BY run_id, flow_id
