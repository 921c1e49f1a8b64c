"""The packet loop: everything that is done for each packet, compiled by numba. docs/packets.md has the rules.

`scan.scan` reads records; `headers` finds the IP packet and its ports; `tunnels` and `fragments` treat what is rare;
`flow_table` finds the flow and counts; `connections` follows TCP; `join` puts the results of parts of a file together.
tests/naive.py says the same in plain Python, one packet at a time; a test holds the two against each other.
"""
