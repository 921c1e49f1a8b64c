"""Where each capture was taken, and which of several copies of a packet counts.

A packet captured at two hosts counts once (DESIGN: duplicate_vantage). The decision is made for a directed five-tuple:
the copy at its sender counts where the sender's own capture has it, else the one at its receiver, else the fullest.
So a capture that holds only what its host received loses nothing. Files of one host whose times overlap saw the same
packets; files that follow each other (tcpdump -C, -G) continue each other and all count.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

import pyarrow as pa

from ddnn_traces.ingestors.facts import CaptureFacts

#: Share of a file's packets that a host must be an end of for the file to be that host's own capture.
OWN_SHARE = 0.98


@lru_cache(maxsize=1 << 16)
def is_host(address: str) -> bool:
    """Whether an address is a single host's: not multicast, limited broadcast or unspecified."""
    ip = ipaddress.ip_address(address)
    return not (ip.is_multicast or ip.is_unspecified or address == "255.255.255.255")


def find_vantages(files: Sequence[CaptureFacts]) -> list[str | None]:
    """Address of the host that each file was captured at; None at a mirror port, or where two hosts fit.

    A file with a single sender is its sender's. Else it is the host's that is an end of nearly all packets. Where two
    fit (a file between two hosts), those that other files have claimed drop out.
    """
    candidates = [_candidates(file.flows) for file in files]
    found: list[str | None] = [None] * len(files)
    progress = True
    while progress:
        progress = False
        for i, fitting in enumerate(candidates):
            left = fitting if len(fitting) == 1 else fitting - {ip for ip in found if ip}
            if found[i] is None and len(left) == 1:
                found[i] = next(iter(left))
                progress = True
    return found


def _candidates(flows: pa.Table) -> set[str]:
    sent: Counter[str] = Counter()
    ends: Counter[str] = Counter()
    total = 0
    columns = (flows[name].to_pylist() for name in ("src_ip", "dst_ip", "packets"))
    for src, dst, packets in zip(*columns, strict=True):
        total += packets
        sent[src] += packets
        for ip in {src, dst}:
            ends[ip] += packets if is_host(ip) else 0
    senders = {ip for ip, packets in sent.items() if packets >= OWN_SHARE * total and is_host(ip)}
    if senders:
        return senders
    fitting = {ip: packets for ip, packets in ends.items() if packets >= OWN_SHARE * total and packets}
    always = {ip for ip, packets in fitting.items() if packets == total}
    return always or set(fitting)


def concurrent_sets(files: Sequence[CaptureFacts], vantages: Sequence[str | None]) -> list[int]:
    """Number of the set that each file belongs to: files of one vantage whose time spans overlap share one."""
    sets = [-1] * len(files)
    latest: dict[str | None, tuple[int, int]] = {}  # vantage -> end of its last set, its number
    order = sorted(range(len(files)), key=lambda i: (files[i].first_ns or 0, files[i].capture_id))
    for number, i in enumerate(order):
        first, last = files[i].first_ns or 0, files[i].last_ns or 0
        end, same = latest.get(vantages[i], (-1, number))
        sets[i] = same if first < end else number
        latest[vantages[i]] = (max(end, last), sets[i])
    return sets
