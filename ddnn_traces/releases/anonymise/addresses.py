"""Addresses: as labels of the hosts' roles, by Crypto-PAn, or kept; and as the addresses of cut-down captures."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ddnn_traces.errors import MissingExtra, UsageError
from ddnn_traces.ingestors.logs import natural_order
from ddnn_traces.releases.anonymise.key import Key
from ddnn_traces.releases.anonymise.names import by_role, tag, unique

KINDS = ("roles", "crypto-pan", "kept")

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

#: Benchmarking ranges (RFC 2544, RFC 5180), which no real host has, and the multicast groups kept for documentation
#: (RFC 6676): what stands for a role in a cut-down capture, which has no room for a word.
_MADE_UP = {4: ipaddress.ip_network("198.18.0.0/15"), 6: ipaddress.ip_network("2001:2::/48")}
_MADE_UP_GROUPS = {4: ipaddress.ip_network("233.252.0.0/24"), 6: ipaddress.ip_network("ff0e::db8:0:0/96")}


def is_everybodys(text: str) -> bool:
    """Whether an address says nothing of anybody: unspecified, loopback, limited broadcast, well-known multicast.

    Well-known: 224.0.0.0/24 (RFC 5771, 4) and the IPv6 groups below 0x10000 of any scope (RFC 4291, 2.7.1), not those
    that are made from a host's address (ff02::1:ffxx:xxxx).
    """
    ip = ipaddress.ip_address(text)
    if ip.is_unspecified or ip.is_loopback or text == "255.255.255.255":
        return True
    if ip.version == 4:
        return int(ip) >> 8 == 0xE00000
    return ip.is_multicast and int(ip) & ((1 << 112) - 1) < 1 << 16


def kind(text: str, never_sends: bool) -> str:
    """multicast, broadcast, unspecified, or host for all others.

    As ingest has it: what ends in .255 and never sends is taken for a subnet's broadcast.
    """
    ip = ipaddress.ip_address(text)
    if ip.is_multicast:
        return "multicast"
    if ip.is_unspecified:
        return "unspecified"
    return "broadcast" if text.endswith(".255") and never_sends else "host"


# --- role labels


def by_roles(
    key: Key, hosts: Iterable[Mapping[str, Any]], labels: Mapping[str, str], others: Iterable[tuple[str, bool]]
) -> dict[str, str]:
    """The label of each address of a run, no two the same.

    hosts: rows of the table. labels: new label of each old one. others: addresses, with whether they never send.
    """
    wanted = {text: f"{kind(text, quiet)}-{tag(key, 'address', text)}" for text, quiet in others}
    for host in hosts:
        label = labels.get(host["label"]) or by_role(host, key)
        wanted[host["host_ip"]] = label or f"host-{tag(key, 'address', host['host_ip'])}"
    mapped: dict[str, str] = {}
    taken: set[str] = set()
    for text in sorted(wanted, key=lambda text: key.derive(f"order {text}", 16)):  # -b must not tell the higher one
        mapped[text] = unique(wanted[text], taken)
        taken.add(mapped[text])
    return mapped


# --- Crypto-PAn


class CryptoPan:
    """Prefix-preserving addresses (Xu et al. 2002), the same in all runs.

    Addresses that are everybody's stay. Multicast, link-local and reserved ones keep what makes them such
    (_fixed_bits), the bits behind it are mapped. An address that would become one of another such kind is mapped
    again until it does not (cycle walking), together with all those that share its prefix. Raises MissingExtra.
    """

    def __init__(self, key: Key) -> None:
        try:
            from yacryptopan import CryptoPAn
        except ImportError as error:
            raise MissingExtra(
                "--addresses crypto-pan needs yacryptopan, which is not installed: pip install 'ddnn-traces[publish]'"
            ) from error
        self._cipher = CryptoPAn(key.derive("crypto-pan", 32))
        self._known: dict[str, str] = {}  # a few milliseconds each

    def map(self, text: str) -> str:
        """The address that stands for one."""
        if text not in self._known:
            self._known[text] = self._map(text)
        return self._known[text]

    def _map(self, text: str) -> str:
        if is_everybodys(text):
            return text
        ip: _Address = ipaddress.ip_address(text)
        bits = _fixed_bits(ip)
        mapped = ip
        while True:
            number = self._cipher.anonymize_bin(int(mapped), ip.version)
            behind = ip.max_prefixlen - bits
            mapped = type(ip)((int(ip) >> behind << behind) | (number & ((1 << behind) - 1)))
            if _fixed_bits(mapped) == bits and not is_everybodys(str(mapped)):
                return str(mapped)


def _fixed_bits(ip: _Address) -> int:
    """How many bits make an address what it is: multicast, link-local, reserved (240/4, 0/8), or (0) a host's."""
    if ip.is_multicast:
        return 4 if ip.version == 4 else 16
    if ip.is_link_local:
        return 16 if ip.version == 4 else 64
    if ip.version == 4 and int(ip) >> 24 in (0, *range(240, 256)):
        return 4 if int(ip) >> 28 else 8
    return 0


# --- addresses of cut-down captures


def made_up(labels: Mapping[str, str], never_send: Collection[str]) -> dict[str, str]:
    """An address of a range that nobody has for each address of a run that has a label, in the order of the labels.

    Groups stay groups, what is everybody's stays, and only a broadcast address ends in .255. Raises UsageError where
    the range is too small.
    """
    used: set[str] = set(labels)
    mapped: dict[str, str] = {}
    at: dict[tuple[int, bool, bool], int] = {}
    for text in sorted(labels, key=lambda text: natural_order(labels[text])):
        ip = ipaddress.ip_address(text)
        if ip.is_unspecified or text == "255.255.255.255":
            mapped[text] = text
            continue
        what = (ip.version, ip.is_multicast, kind(text, text in never_send) == "broadcast")
        network = (_MADE_UP_GROUPS if ip.is_multicast else _MADE_UP)[ip.version]
        number = at.get(what, 0)
        while True:
            number += 1
            if number >= network.num_addresses:
                raise UsageError(
                    f"{len(labels)} addresses do not fit into {network}, which stands for them in cut-down captures; "
                    "publish without captures, or with --addresses crypto-pan"
                )
            made = str(network[number])
            last = number & 0xFF
            if made not in used and (ip.version == 6 or ip.is_multicast or (last == 255) == what[2]) and last:
                break
        at[what] = number
        used.add(made)
        mapped[text] = made
    return mapped
