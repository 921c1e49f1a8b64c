"""Addresses: as labels of the hosts' roles, by Crypto-PAn, or kept; and as the addresses of cut-down captures."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ddnn_traces.errors import MissingExtra, UsageError
from ddnn_traces.ingestors.logs import natural_order
from ddnn_traces.release.anonymise.key import Key
from ddnn_traces.release.anonymise.names import by_role, first_number, tag, unique

KINDS = ("roles", "crypto-pan", "kept")

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

#: Benchmarking ranges (RFC 2544, RFC 5180), which no real host has, and the multicast groups kept for documentation
#: (RFC 6676): what stands for a role in a cut-down capture, which has no room for a word.
_MADE_UP = {4: ipaddress.ip_network("198.18.0.0/15"), 6: ipaddress.ip_network("2001:2::/48")}
_MADE_UP_GROUPS = {4: ipaddress.ip_network("233.252.0.0/24"), 6: ipaddress.ip_network("ff0e::db8:0:0/96")}


#: Ranges whose addresses stay in them: what they are for is told by their begin. The narrower ones are everybody's.
_RANGES = {
    4: ("0.0.0.0/8", "0.0.0.0/32", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "224.0.0.0/23", "240.0.0.0/4",
        "255.255.255.255/32"),
    6: ("::/128", "::1/128", "fe80::/10", "ff00::/8"),
}  # fmt: skip
_LINK_LOCAL = ipaddress.ip_network("fe80::/10")


def is_everybodys(text: str) -> bool:
    """Whether an address says nothing of anybody: unspecified, loopback, limited broadcast, well-known multicast.

    Well-known: 224.0.0.0/23 (RFC 5771, 4 and 5) and the IPv6 groups below 0x10000 of any scope (RFC 4291, 2.7.1), not
    those that are made from a host's address (ff02::1:ffxx:xxxx). Unspecified and limited broadcast with their
    neighbours, 0.0.0.1 and 255.255.255.254, which no host has and no prefix-preserving mapping could move.
    """
    ip = ipaddress.ip_address(text)
    if ip.is_unspecified or ip.is_loopback:
        return True
    if ip.version == 4:
        return int(ip) >> 9 == 0xE00000 >> 1 or int(ip) in (1, 2**32 - 2, 2**32 - 1)
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
    key: Key, hosts: Collection[Mapping[str, Any]], labels: Mapping[str, str], others: Iterable[tuple[str, bool]]
) -> dict[str, str]:
    """The label of each address of a run, no two the same.

    hosts: rows of the table. labels: new label of each old one. others: addresses, with whether they never send.
    """
    wanted = {text: f"{kind(text, quiet)}-{tag(key, 'address', text)}" for text, quiet in others}
    first = first_number(labels)
    for host in hosts:
        label = labels.get(host["label"]) or by_role(host, key, first)
        wanted[host["host_ip"]] = label or f"host-{tag(key, 'address', host['host_ip'])}"
    labelled = {host["host_ip"] for host in hosts if host["label"] is not None}  # these come first: it is their label
    mapped: dict[str, str] = {}
    taken: set[str] = set()
    # the order is the key's, since -b must not tell which address is the higher one
    for text in sorted(wanted, key=lambda text: (text not in labelled, key.derive(f"order {text}", 16))):
        mapped[text] = unique(wanted[text], taken)
        taken.add(mapped[text])
    return mapped


# --- Crypto-PAn


class CryptoPan:
    """Prefix-preserving addresses (Xu et al. 2002), the same in all runs: two that share n bits share n afterwards.

    Crypto-PAn flips each bit or not by the bits before it. Where these are the begin of a range that is to stay
    (_kept_bits), it is not flipped: so addresses that are everybody's stay, multicast, link-local and reserved ones
    stay such, no other becomes one, and every common prefix is kept, between them too. Raises MissingExtra.
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
        ip: _Address = ipaddress.ip_address(text)
        if is_everybodys(text):
            return text
        flipped = self._cipher.anonymize_bin(int(ip), ip.version) ^ int(ip)
        return str(type(ip)(int(ip) ^ (flipped & ((1 << (ip.max_prefixlen - _kept_bits(ip))) - 1))))


def _kept_bits(ip: _Address) -> int:
    """How many leading bits are not flipped: up to the first at which the address leaves every range that stays."""
    if ip.version == 4:
        return max(_kept_for(ip, ipaddress.ip_network(network)) for network in _RANGES[4])
    kept = max(_kept_for(ip, ipaddress.ip_network(network)) for network in _RANGES[6])
    if ip.is_multicast:  # flags and scope, and the well-known groups with them
        scope = int(ip) >> 112 << 112
        return max(16, kept, _kept_for(ip, ipaddress.ip_network((scope, 112))))
    return max(64, kept) if ip in _LINK_LOCAL else kept


def _kept_for(ip: _Address, network: ipaddress.IPv4Network | ipaddress.IPv6Network) -> int:
    """Bits of the address that are not flipped, so that the range stays where it is: one more than they share."""
    shared = ip.max_prefixlen - (int(ip) ^ int(network.network_address)).bit_length()
    return min(shared + 1, network.prefixlen)


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
