"""Capture filters: the packets that tcpdump keeps of random ones, and the errors of wrong expressions."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import numpy as np
import packets as p
import pytest
from tools import needs_tool

from ddnn_traces.errors import UsageError
from ddnn_traces.ingestors.flow_filter import apply_filter, parse
from ddnn_traces.pcap import numba_engine
from ddnn_traces.pcap.capture_facts import CaptureFacts, ReadOptions

V4 = ["10.0.0.1", "10.0.0.2", "10.0.1.1", "10.1.0.1", "192.168.7.9"]
V6 = ["fd00::1", "fd00::2", "fd00:1::1", "2001:db8::5"]
PORTS = [0, 22, 80, 443, 5000, 65535]
ICMP6 = 58


def keeps(expression: str, *key: str | int) -> bool:
    return parse(expression).keeps(*key)  # type: ignore[arg-type]


# --- compared with tcpdump


def random_key(rng: random.Random) -> tuple[str, str, int, int, int]:
    version = rng.choice((4, 6))
    src, dst = rng.choices(V4 if version == 4 else V6, k=2)
    protocol = rng.choice((p.TCP, p.TCP, p.UDP, p.UDP, p.ICMP, ICMP6, 47, 50))
    ports = rng.choices(PORTS, k=2) if protocol in (p.TCP, p.UDP) else [0, 0]
    return src, dst, protocol, ports[0], ports[1]


def frame(key: tuple[str, str, int, int, int]) -> bytes:
    src, dst, protocol, src_port, dst_port = key
    transport = {p.TCP: p.tcp, p.UDP: p.udp}.get(protocol)
    payload = transport(b"data", src_port, dst_port) if transport else p.icmp(b"data")
    if ":" in src:
        return p.ethernet(p.ipv6(payload, src, dst, protocol), p.IPV6)
    return p.ethernet(p.ipv4(payload, src, dst, protocol))


def random_id(rng: random.Random, kind: str, version: int) -> str:
    if kind == "host":
        return rng.choice(V4 if version == 4 else V6)
    if kind == "net" and version == 4:
        return rng.choice(["10", "10.0", "10.0.1", "10.0.0.0/8", "10.0.0.0/31", "10.0.0.1", "0.0.0.0/0",
                           "10.0.0.0 mask 255.255.0.0", "192.168 mask 255.255.0.0"])  # fmt: skip
    if kind == "net":
        return rng.choice(["fd00::/16", "fd00::/32", "::/0", "fd00::1", "2001:db8::/33"])
    if kind == "port":
        return str(rng.choice(PORTS))
    low, high = rng.choices(PORTS, k=2)
    return f"{low}-{high}" if kind == "portrange" else str(rng.choice((1, 6, 17, 47, 50, 58)))


def random_primitive(rng: random.Random) -> str:
    kind = rng.choice(("host", "host", "net", "net", "port", "port", "portrange", "proto", "name"))
    if kind == "name":
        return rng.choice(("tcp", "udp", "icmp", "icmp6", "ip", "ip6", "sctp", "esp", "igmp", "ah"))
    version = rng.choice((4, 6))
    before = ["", "tcp ", "udp "] if kind.startswith("port") else ["", {4: "ip ", 6: "ip6 "}[version]]
    direction = ["", "src ", "dst ", "src or dst ", "dst or src ", "src and dst ", "dst and src "]
    shown = "" if kind == "host" and rng.random() < 0.3 else f"{kind} "
    chosen = "" if kind == "proto" else rng.choice(direction)
    if not shown and not chosen:
        shown = "host "
    ids = [random_id(rng, kind, version) for _ in range(rng.choice((1, 1, 1, 2, 3)))]
    return rng.choice(before) + chosen + shown + rng.choice((" or ", " and ", " || ", " or not ", " and ! ")).join(ids)


def random_expression(rng: random.Random, depth: int = 0) -> str:
    parts = []
    for _ in range(rng.choice((1, 1, 2, 3))):
        part = random_primitive(rng)
        if depth < 3 and rng.random() < 0.35:
            part = f"({random_expression(rng, depth + 1)})"
        parts += [rng.choice(("", "", "", "not ", "! ")) + part, rng.choice((" and ", " or ", " && ", "||"))]
    return "".join(parts[:-1])


def kept_by_tcpdump(expression: str, capture: bytes) -> list[int]:
    """Numbers of the packets, which are their times in µs."""
    call = [needs_tool("tcpdump"), "-n", "-r", "-", "-w", "-", "--", expression]
    done = subprocess.run(call, input=capture, capture_output=True)
    if b"expression rejects all packets" in done.stderr:
        return []
    assert done.returncode == 0, (expression, done.stderr)
    at, found = 24, []
    while at < len(done.stdout):
        found.append(int.from_bytes(done.stdout[at + 4 : at + 8], "little"))
        at += 16 + int.from_bytes(done.stdout[at + 8 : at + 12], "little")
    return found


@pytest.mark.long
def test_keeps_what_tcpdump_keeps() -> None:
    rng = random.Random(7)
    keys = [random_key(rng) for _ in range(300)]
    capture = p.pcap(p.Record(number * 1000, frame(key)) for number, key in enumerate(keys))
    numbers_kept = set()
    for _ in range(300):
        expression = random_expression(rng)
        flow_filter = parse(expression)
        kept = [number for number, key in enumerate(keys) if flow_filter.keeps(*key)]
        assert kept == kept_by_tcpdump(expression, capture), expression
        numbers_kept.add(len(kept))
    assert len(numbers_kept) > 50  # not always all or none


@pytest.mark.parametrize(
    "expression",
    [
        "host (10.0.0.1 or 10.0.0.2)", "src host 10.0.0.1 or (10.0.1.1 or 10.0.0.2)", "port 80 or (443 or 22)",
        "not not tcp", "! host 10.0.0.1 and ! 10.0.0.2", "proto \\tcp", "ip proto \\udp", "port 80 and 443 or 22",
        "not (tcp or udp) and not icmp", "port 80 or tcp and host 10.0.0.1", "udp or tcp and port 22",
    ],
)  # fmt: skip
def test_odd_forms_mean_what_tcpdump_takes_them_for(expression: str) -> None:
    rng = random.Random(8)
    keys = [random_key(rng) for _ in range(200)]
    capture = p.pcap(p.Record(number * 1000, frame(key)) for number, key in enumerate(keys))
    kept = [number for number, key in enumerate(keys) if parse(expression).keeps(*key)]
    assert kept == kept_by_tcpdump(expression, capture)
    assert 0 < len(kept) < len(keys)


# --- beyond tcpdump


def test_names_that_tcpdump_spells_otherwise() -> None:
    assert keeps("gre", "10.0.0.1", "10.0.0.2", 47, 0, 0)
    assert keeps("proto tcp", "fd00::1", "fd00::2", 6, 1, 2)
    assert not keeps("gre or proto ipip", "10.0.0.1", "10.0.0.2", 6, 1, 2)


def test_port_0_does_not_match_flows_without_ports() -> None:
    assert keeps("port 0", "10.0.0.1", "10.0.0.2", 17, 0, 5)
    assert not keeps("port 0", "10.0.0.1", "10.0.0.2", 1, 0, 0)


def test_thousands_of_terms() -> None:
    expression = " or ".join(f"host 10.{n // 250}.{n % 250}.1" for n in range(5000))
    assert keeps(expression, "10.19.249.1", "11.0.0.1", 6, 1, 2)
    assert not keeps(expression, "10.19.249.2", "11.0.0.1", 6, 1, 2)
    assert keeps("not " * 5000 + "tcp", "10.0.0.1", "10.0.0.2", 6, 1, 2)


@pytest.mark.parametrize(
    ("expression", "stated"),
    [
        ("", "the filter is empty"),
        ("  ", "the filter is empty"),
        ("10.0.0.1", "at character 1, '10.0.0.1': expected host, net, port"),
        ("tcp and 10.0.0.1", "at character 9, '10.0.0.1': expected host, net, port"),
        ("host", "at its end: expected an IPv4 or IPv6 address"),
        ("host example.com", "at character 6, 'example.com': expected an IPv4 or IPv6 address (names are not resolved"),
        ("host 10.1", "for a network write net"),
        ("host fd00::1%eth0", "at character 6"),
        ("ip6 host 10.0.0.1", "at character 10, '10.0.0.1': expected an IPv6 address"),
        ("ip net fd00::/8", "expected an IPv4 address"),
        ("net 10.1.1.1/8", "net 10.1.1.1/8"),
        ("net 10.0.0.0/33", "expected a network"),
        ("net 10.0.0.0 mask 0.0.0.255", "at character 19, '0.0.0.255': expected a mask"),
        ("net 10.0.0.0 mask", "at its end: expected a mask"),
        ("port http", "at character 6, 'http': expected a port from 0 to 65535 (names are not resolved)"),
        ("port 65536", "expected a port"),
        ("port 1-2", "expected a port"),
        ("portrange 1-", "expected two ports from 0 to 65535 as N-M"),
        ("ip port 80", "at character 1, 'ip': expected tcp, udp or sctp before port"),
        ("tcp prot 5000", "at character 5, 'prot': expected port or portrange; for a host write 'tcp and host ...'"),
        ("icmp src 10.0.0.1", "at character 10, '10.0.0.1': expected and, or, or the end; for a host"),
        ("net 10.0.0.1 mask 255.0.0.0", "at character 5, '10.0.0.1': expected a network"),
        ("tcp host 10.0.0.1", "at character 1, 'tcp': expected ip or ip6 before host"),
        ("src proto 6", "expected proto without src or dst"),
        ("proto 256", "expected a protocol's number from 0 to 255"),
        ("port 80 or", "at its end: expected"),
        ("port 80 443", "at character 9, '443': expected and, or, or the end"),
        ("(port 80", "at its end: expected and, or, or )"),
        ("port 80)", "at character 8, ')': expected and, or, or the end"),
        ("tcp[13] = 2", "at character 1, 'tcp[13]': expected"),
        ("port 80 & 443", "at character 9, '&': expected"),
        ("(" * 60 + "tcp" + ")" * 60, "at most 50 nested parentheses"),
    ],
)
def test_wrong_expressions(expression: str, stated: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(expression)
    assert stated in str(caught.value)


# --- on the facts of a file


def test_column_of_the_flows(tmp_path: Path) -> None:
    rng = random.Random(9)
    path = tmp_path / "a.pcap"
    path.write_bytes(p.pcap(p.Record(n * 1000, frame(random_key(rng))) for n in range(200)))
    facts = numba_engine.read_capture(path, ReadOptions(10**6, np.zeros(0, np.int64), tmp_path / "cells"))
    apply_filter(facts, parse("tcp port 80 or net 10.0"))
    rows = facts.flows.to_pylist()
    expected = [
        (row["protocol"] == 6 and 80 in (row["src_port"], row["dst_port"]))
        or row["src_ip"].startswith("10.0.") or row["dst_ip"].startswith("10.0.")
        for row in rows
    ]  # fmt: skip
    assert [row["kept"] for row in rows] == expected
    assert facts.flows.schema.names.count("kept") == 1
    assert {True, False} == set(expected)


def test_file_without_flows() -> None:
    facts = CaptureFacts(Path("a.pcap"), "none", 0)
    apply_filter(facts, parse("tcp"))
    assert facts.flows["kept"].to_pylist() == []
