"""What an anonymisation did: for each column of a release, and in sentences for its datasheet."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ddnn_traces.release import facts
from ddnn_traces.store import schema

# --- columns. Units and types are those of schemas/: a shifted time is still a number of nanoseconds.

#: By what a column identifies (schema.IDENTIFIES) and the option that decides.
_CHANGES = {
    "address": {
        "roles": "a label of the host's role (worker-1), or one made with the key, in place of the address",
        "crypto-pan": "mapped by Crypto-PAn (prefixes kept), not the real address",
    },
    "port": {
        "permuted": "permuted within its range, not the real port",
        "classed": "the first port of its class (1, 1024 or 32768) in place of the port",
    },
    "time": {"shifted": "shifted by one secret offset, the same for all times: intervals are real, dates are not"},
}
_WITHHELD = {
    "hash": "withheld, null in all rows: whoever holds the original could recognise it",
    "size": "withheld, null in all rows",
    "clock": "withheld, null in all rows: how a clock goes distinguishes a device",
}
_NUMBERED = {
    "tunnel": "numbered in the order of what is here",
    "flow": "those that begin at the same time are numbered in the order of what is here",
}
_OTHER_CHANGES = {
    "label": "names that say more than a role are labels made with the key",
    "file": "named after the host in place of the real file name",
    "text": "without paths, addresses and names",
}


def released(table: str, done: facts.Anonymisation) -> schema.Table:
    """The table's definition with the meaning of each column in a release that was anonymised so.

    A column that was withheld may be null.
    """
    defined = schema.table(table)
    columns = (
        replace(
            column,
            meaning=f"{column.meaning}. In this release: {changed}",
            nullable=column.nullable or column.identifies in done.withheld,
        )
        if changed
        else column
        for column in defined.columns
        for changed in [change(column, done)]
    )
    return replace(defined, columns=tuple(columns))


def change(column: schema.Column, done: facts.Anonymisation) -> str | None:
    """What was done to the values of a column; None where they are unchanged."""
    identifies = column.identifies
    options = {"address": done.addresses, "port": done.ports, "time": done.times}
    if identifies in options:
        return _CHANGES[identifies].get(options[identifies])
    if identifies == "connection" and done.ports == "classed":
        return "numbered among all that have the same addresses and classes of ports"
    if identifies in ("tunnel", "flow") and (done.addresses, done.ports) != ("kept", "kept"):
        return _NUMBERED[identifies]
    if identifies in _WITHHELD:
        return _WITHHELD[identifies] if identifies in done.withheld else None
    return _OTHER_CHANGES.get(identifies)


# --- sentences

_ADDRESSES = {
    "roles": "IP addresses became labels of the hosts' roles (worker-1), the same in every table of a run; addresses "
    "of hosts without a role, groups and tunnel ends became labels made with the key, the same in all runs.",
    "crypto-pan": "IP addresses were mapped by Crypto-PAn (prefix-preserving), the same in all runs; unspecified, "
    "loopback, limited-broadcast and well-known multicast addresses are unchanged, other multicast and link-local ones "
    "remain such. All common prefixes are kept.",
    "kept": "",
}
_PORTS = {
    "kept": "",
    "permuted": "TCP and UDP ports were permuted within well-known (below 1,024), registered and ephemeral (from "
    "32,768 on) ones; 4789, 8472, 6081 (tunnels) and 4791 (RoCEv2) are unchanged.",
    "classed": "TCP and UDP ports became the first of their class: 1 (below 1,024), 1024 or 32768 (from there on); "
    "4789, 8472, 6081 (tunnels) and 4791 (RoCEv2) are unchanged.",
}
_TIMES = {
    "shifted": "All times were shifted by one secret number of whole seconds, to between 1971 and 2037, those of "
    "generated runs by another one; intervals, also between runs, are unchanged. A run that does not fit into these "
    "years so was shifted by a number of its own.",
    "kept": "",
}
_ALWAYS = (
    "Names of hosts that state more than a role became labels; names of capture files became those of the hosts.",
    "Where the name of a run held an address, a host, a user or a time, this part became a tag made with the key.",
    "Free text (damage of a capture, parameters of the ingest) lost paths, addresses and names; a capture "
    "filter with numbers in it was withheld.",
    "The dataset's own record of its inputs (inputs.json), with names and times of files, is not in the release.",
)
_CAPTURES = (
    "Cut-down captures hold link, IP and transport headers with their original lengths, and zeros or nothing in place "
    "of payload, hardware addresses, TCP time stamps, identifications and whatever was not understood.",
)

_ADDRESSES_REMAIN = {
    "roles": "The role of each host and which hosts communicate remain: that is what the data are for. A reader who "
    "knows the testbed knows which machine was the first worker.",
    "crypto-pan": "Crypto-PAn keeps which addresses share a prefix, and here the first three bits of each or more: "
    "a reader who knows some pairs of real and mapped addresses, or can send chosen packets into the capture, learns "
    "prefixes of others. In a subnet of a few hosts an address is easily guessed.",
    "kept": "IP addresses are the real ones.",
}
_PORTS_REMAIN = {
    "kept": "Ports are the real ones, and identify services and programs.",
    "permuted": "Which flows share a port remains, and how often one is used identifies well-known services.",
    "classed": "",
}
_TIMES_REMAIN = {
    "shifted": "Sub-second parts of times and all intervals remain: another record of the same training reveals the "
    "offset. A day without a time of day (2026-01-31) in a name or a text is not searched for.",
    "kept": "Times are the real ones.",
}
_WORDS = {
    "kept": "",
    "known": "Names of runs, frameworks, models, layers and settings hold words of a public vocabulary, numbers of "
    "stated fields, and words that the publisher confirmed; a tag made with the key stands for anything else.",
}
_WORDS_REMAIN = {
    "kept": "Other names of runs, and those of frameworks, models and layers, are the publisher's own words and are "
    "unchanged.",
    "known": "",
}
_ALWAYS_REMAIN = (
    "Sizes, counts and timing of packets are the data themselves, and identify the traffic to anybody who captured it "
    "elsewhere.",
    "Identifiers of tunnels (VNI, GRE key) and queue pairs of RoCE are unchanged.",
    "Names of hosts and users were searched for as words of their own: one that is joined to other letters, or has "
    "fewer than 4, is not found.",
)
_ORIGINALS = {
    "hash": (
        "SHA-256 and BLAKE3 of the original captures were withheld.",
        "SHA-256 or BLAKE3 of the original captures are the real ones: whoever holds an original, also a public one, "
        "recognises it.",
    ),
    "size": (
        "Sizes of the original capture files were withheld. That of an uncompressed pcap follows from its packets and "
        "captured bytes.",
        "Sizes of the original capture files are the real ones, which helps to recognise an original.",
    ),
    "clock": (
        "Estimates of the clocks' offsets and drift were withheld; times that several hosts recorded still allow to "
        "estimate them.",
        "Offsets and drift of the hosts' clocks are the real ones: a drift distinguishes a device. The host that "
        "offsets are stated against is the first of the run by its real address.",
    ),
}
_UNSEARCHED = (
    "Names of users and hosts, paths and hardware addresses that are only in the original captures and logs were not "
    "searched for, since these were not given when it was published.",
)


def describe(
    addresses: str,
    ports: str,
    times: str,
    key_id: str | None,
    captures: bool = False,
    withheld: Collection[str] = (),
    words: str = "kept",
) -> facts.Anonymisation:
    """The facts of an anonymisation with these options.

    captures: whether the release has cut-down captures. withheld: what columns identify that are null. words: as
    Options has it.
    """
    lost = [_ORIGINALS[kind][0] for kind in _ORIGINALS if kind in withheld]
    kept = [_ORIGINALS[kind][1] for kind in _ORIGINALS if kind not in withheld]
    removed = (
        _ADDRESSES[addresses],
        _PORTS[ports],
        _TIMES[times],
        *lost,
        *_ALWAYS,
        _WORDS[words],
        *(_CAPTURES if captures else ()),
    )
    chosen = (_ADDRESSES_REMAIN[addresses], _PORTS_REMAIN[ports], _TIMES_REMAIN[times], *kept, _WORDS_REMAIN[words])
    remaining = (*chosen, *_ALWAYS_REMAIN, *(() if captures else _UNSEARCHED))
    return facts.Anonymisation(
        addresses,
        ports,
        times,
        key_id,
        tuple(filter(None, removed)),
        tuple(filter(None, remaining)),
        tuple(kind for kind in _ORIGINALS if kind in withheld),
    )
