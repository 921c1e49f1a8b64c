"""From the facts of a run's files to its tables: clocks, copies of packets, flows, windows, steps."""
