"""From the bytes of a capture to its facts, and what works on bytes.

`streams`, `compression` and `capture_file` give the bytes of a file, on this machine or on a store. An engine
(`engines`) turns them into `capture_facts`: the fast one (`numba_engine`; `records`, `scanner`, and `parts` of a large
file lead to the loop in `compiled`), or tshark's dissectors (`tshark`). `flow_counters` and `link_types` declare what
both must know. `chosen` finds and copies the records of chosen flows; compiled/cut.py cuts captures down, and
compiled/addresses.py searches them.
"""
