"""The packet loop: everything that is done for each packet, compiled by numba. docs/packets.md has the rules.

`scan.scan` reads records; `headers` finds the IP packet and its ports, also in tunnels; `fragments` finds the flow of
fragments; `flow_table` finds the flow and counts; `connections` follows TCP; `join` joins the facts of parts of a file.
tests/naive is the same in plain Python, one packet at a time, and the tests compare the two.
"""
