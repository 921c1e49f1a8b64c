-- question: Which attributes of a run may explain what it sends and how long it takes?
-- row: a run
-- inputs: runs, segmentation_offload
-- figure: zerwas section VI, the right side of equation (1)
-- column: run_id; run
-- column: model_bytes bytes; bytes of trainable parameters, which is what a step exchanges
-- column: model_size_mb MB (10^6 bytes); nominal model size as published
-- column: nominal_bytes bytes; model_size_mb in bytes
-- column: framework_backend; framework and backend joined by a hyphen, one attribute as in the paper
-- column: batch_size samples; samples that a worker uses in one step
-- column: topology; declared topology
-- column: workers hosts; declared number of workers
-- column: delay_ms ms; one-way delay added between any two hosts
-- column: loss_pct percent; packets dropped on purpose
-- column: bandwidth_mbit Mbit/s; rate that every link was shaped to
-- column: model; name of the trained model
-- column: optimizer; optimizer
-- column: offload; whether the run was captured with segmentation offload (segmentation_offload)
-- column: source; origin of the run: capture, testbed, simulation, ns3 or synthetic
SELECT run_id, model_bytes, model_size_mb, model_size_mb * 1e6 AS nominal_bytes,
       framework || coalesce('-' || backend, '') AS framework_backend,
       batch_size, topology, workers, delay_ms, loss_pct, bandwidth_mbit, model, optimizer, offload, source
FROM runs
JOIN segmentation_offload USING (run_id)
ORDER BY run_id
