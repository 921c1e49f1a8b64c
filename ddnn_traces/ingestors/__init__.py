"""Ingestors: from capture files and logs to tables.

In the order in which data flows: `sources` finds runs, `metadata` and `logs` read what lies beside the captures,
an engine (`numba_engine` over `capture_file` and `packet_loop`, or `pyshark_engine`) turns each capture into `facts`
and cells (`cell_spill`), `vantage` decides which copy of a packet counts, `tables` builds the run's tables, `store`
writes them.
"""
