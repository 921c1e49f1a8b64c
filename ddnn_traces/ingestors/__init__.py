"""Ingestors: from capture files and logs to tables.

In the order in which data flow: `sources` finds runs, `metadata` and
`logs` read the files next to the captures, `description` joins all that is known of a run without its packets, `inputs`
decides what has changed. `runs` makes a task for each file, and a scheduler (`schedule`) runs them: an engine of
ddnn_traces/pcap turns a capture into its facts and cells. `reconcile` compares clocks, decides which copy of a
packet counts, and builds the run's tables: from the facts or, where only the description has changed, from the dataset.
`pipeline` leads through it and writes the dataset. `template` writes a runs.csv to fill in.
"""
