-- question: Which runs transmit more or less than their algorithm must move, by more than 2% that nothing explains?
-- row: a run whose exchange is flagged
-- inputs: conservation
-- column: run_id
-- column: topology
-- column: law; law of the exchange, as in exchange_laws
-- column: steps steps; different steps in the run's logs
-- column: expected_bytes bytes; as in conservation
-- column: payload_bytes bytes; as in conservation
-- column: spilled_bytes bytes; as in conservation
-- column: startup_in_steps_bytes bytes; as in conservation
-- column: retransmitted_bytes bytes; as in conservation
-- column: framing_bytes bytes; as in conservation
-- column: missed_bytes bytes; as in conservation
-- column: unexplained_bytes bytes; as in conservation
-- column: unexplained_share
-- Packets are missing (a worker without a capture; what a capture dropped is in missed_bytes as far as numbers prove it) or counted twice, or the declared model_bytes
-- differ from what is exchanged.
SELECT run_id, topology, law, steps, expected_bytes, payload_bytes, spilled_bytes, startup_in_steps_bytes,
       retransmitted_bytes, framing_bytes, missed_bytes, unexplained_bytes, unexplained_share
FROM conservation()
WHERE flagged
ORDER BY run_id
