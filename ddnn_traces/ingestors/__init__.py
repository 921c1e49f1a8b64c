"""Ingestors: from capture files and logs to tables.

In the order in which data flows: `sources` finds runs, `metadata` and `logs` read what lies beside the captures, an
engine (`numba_engine` over `capture_file` and `compiled`, or `pyshark_engine`) turns each capture into `facts` and
cells (`spill`), `vantage` decides which copy of a packet counts, `clocks` compares clocks, `tables` builds the run's
tables, `store` writes them. `reading` and `pipeline` lead through it; docs/design.md has the whole list.
"""
