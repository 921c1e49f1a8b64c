"""Jobs, steps and collectives of today's training from the messages of a run, without logs or declared attributes.

The way of a run's messages, in order:

1. `streams.py`: the messages of each flow; `clocks.py`: clocks that are off are set right.
2. `periods.py`: the bytes after which a flow's silences recur.
3. `jobs.py`: flows that take their steps together; `steps.py`: where these steps start; `validations.py`: what is sent
   behind few of them is taken off. `irregular.py`: flows without a period in bytes.
4. `phases.py`: what hosts do between two pauses of a step; `completion.py`: parts that a slow host divides.
5. `kinds.py`: which collectives these are, by their graph (`shapes.py`) or their order (`sharded.py`).
6. `tables.py`: the result as Arrow tables. `infer.py` calls 1 to 5 in this order.
"""
