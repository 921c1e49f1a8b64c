-- question: In which order do runs enter a figure that cannot show all of them?
-- subject: runs
-- row: a run that has a flow
-- inputs: runs, flows
-- column: run_id from flows
-- column: place; number of the run in the order, from 1
-- One run of every framework, backend and topology comes before the second of any of them.
WITH numbered AS (
    SELECT run_id, row_number() OVER (PARTITION BY framework, backend, topology ORDER BY run_id) AS of_its_kind
    FROM runs
    WHERE run_id IN (SELECT run_id FROM flows)
)
SELECT run_id, row_number() OVER (ORDER BY of_its_kind, run_id) AS place
FROM numbered
ORDER BY place
