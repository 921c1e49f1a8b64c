-- question: Which runs transmit more or less than their algorithm must move, by more than 2% that nothing explains?
-- row: a run whose exchange is flagged
-- inputs: conservation
-- Packets are missing (a capture that dropped some, a worker without one) or counted twice, or the declared model_bytes are
-- not what is exchanged.
SELECT run_id, topology, law, steps, expected_bytes, payload_bytes, spilled_bytes, retransmitted_bytes, unexplained_bytes,
       unexplained_share
FROM conservation()
WHERE flagged
ORDER BY run_id
