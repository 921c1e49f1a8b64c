"""What the columns of a release mean: schemas/ say what they are before a release, this adds what became of them.

Units and types stay as in schemas/: a shifted time is still a number of nanoseconds, on another calendar.
"""

from __future__ import annotations

from dataclasses import replace

from ddnn_traces.release import facts
from ddnn_traces.store import schema

#: By what a column identifies (schema.IDENTIFIES) and the option that decides.
_ADDRESSES = {
    "roles": "a label of the host's role (worker-1), or one made with the key, in place of the address",
    "crypto-pan": "mapped by Crypto-PAn (prefixes kept), not the real address",
}
_PORTS = {
    "permuted": "permuted within its range, not the real port",
    "classed": "the first port of its class (1, 1024 or 32768) in place of the port",
}
_TIMES = {
    "shifted": "shifted by one secret offset, the same for all times: intervals are real, dates are not",
}
_ALWAYS = {
    "label": "names that say more than a role are labels made with the key",
    "file": "named after the host in place of the real file name",
    "text": "without paths, addresses and names",
}


def released(table: str, done: facts.Anonymisation) -> schema.Table:
    """The table's definition with the meaning of each column in a release that was anonymised so."""
    defined = schema.table(table)
    return replace(defined, columns=tuple(_released(column, done) for column in defined.columns))


def _released(column: schema.Column, done: facts.Anonymisation) -> schema.Column:
    became = _became(column, done)
    return replace(column, meaning=f"{column.meaning}. In this release: {became}") if became else column


def _became(column: schema.Column, done: facts.Anonymisation) -> str | None:
    """What was done to a column's values; None where they are as schemas/ say."""
    match column.identifies:
        case "address":
            return _ADDRESSES.get(done.addresses)
        case "port":
            return _PORTS.get(done.ports)
        case "time":
            return _TIMES.get(done.times)
        case "tunnel":
            return None if (done.addresses, done.ports) == ("kept", "kept") else "numbered in the order of what is here"
    return _ALWAYS.get(column.identifies)
