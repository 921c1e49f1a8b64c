-- question: In which order do runs enter a figure that cannot show all of them, and which share a row of one?
-- subject: runs
-- row: a run that has a flow
-- inputs: runs, flows
-- column: run_id from flows
-- column: place; number of the run in the order, from 1
-- column: setting; declared framework, backend, topology, workers and their ranks in a few words, which runs of a row share; null where none is declared
-- One run of every framework, backend and topology comes before the second of any of them.
WITH numbered AS (
    SELECT run_id, framework, backend, topology, workers, ranks_per_host,
           row_number() OVER (PARTITION BY framework, backend, topology ORDER BY run_id) AS of_its_kind
    FROM runs
    WHERE run_id IN (SELECT run_id FROM flows)
)
SELECT run_id, row_number() OVER (ORDER BY of_its_kind, run_id) AS place,
       nullif(concat_ws(', ', nullif(concat_ws(' ', nullif(concat_ws('-', framework, backend), ''), topology), ''),
                        workers || if(workers = 1, ' worker', ' workers') || coalesce(' of ' || nullif(ranks_per_host, 1) || ' ranks', '')), '') AS setting
FROM numbered
ORDER BY place
