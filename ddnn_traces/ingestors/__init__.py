"""Ingestors: from capture files and logs to tables.

In the order in which data flow: `sources` finds runs, `metadata` and `logs` read the files next to the captures,
`inputs` decides which runs have changed. `runs` makes a task for each file, and a scheduler (`schedule`) runs them: an
engine (`packets`, or `tshark`) turns a capture into `facts` and cells. `reconcile` compares clocks, decides which copy
of a packet counts, and builds the run's tables. `pipeline` leads through it and writes the dataset.
"""
