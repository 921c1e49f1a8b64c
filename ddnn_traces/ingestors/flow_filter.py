"""Capture-filter expressions over flows: a subset of pcap-filter(7) with its meaning and precedence.

    expression  = term { (and | or) term }              equal precedence, from left to right
    term        = not term | ( expression ) | primitive | id
    primitive   = [ip|ip6] [direction] [host] ADDRESS
                | [ip|ip6] [direction] net NETWORK      10.1, 10.0.0.0/8, 10.0.0.0 mask 255.0.0.0, fd00::/8
                | [tcp|udp|sctp] [direction] port N | portrange N-M
                | [ip|ip6] proto N|NAME | PROTOCOL
    direction   = src | dst | src or dst | dst or src | src and dst | dst and src

`&&`, `||` and `!` stand for and, or, not. An id without keywords takes those of the primitive before it: `host A or B`,
`port 80 or 443`. Where a flow is inside a tunnel, its own addresses count. Names of hosts and ports are not resolved.
Ports are those of TCP and UDP flows; others have none.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple, NoReturn

import pyarrow as pa

from ddnn_traces.errors import UsageError
from ddnn_traces.pcap.capture_facts import CaptureFacts

TCP, UDP = 6, 17

#: Keywords of protocols: number, and IP version where pcap-filter(7) has it in one only.
_KEYWORDS: Final[dict[str, tuple[int, int | None]]] = {
    "tcp": (TCP, None), "udp": (UDP, None), "sctp": (132, None), "icmp": (1, 4), "icmp6": (58, 6), "igmp": (2, 4),
    "gre": (47, None), "esp": (50, None), "ah": (51, None), "pim": (103, None), "vrrp": (112, 4),
}  # fmt: skip
#: More names that `proto` takes.
_PROTOCOLS: Final = {name: number for name, (number, _) in _KEYWORDS.items()} | {"ipip": 4, "ipv6": 41}
_VERSIONS: Final = {"ip": 4, "ip6": 6}
_WITH_PORTS: Final = {"tcp": {TCP}, "udp": {UDP}, "sctp": {132}, None: {TCP, UDP, 132}}
_TYPES: Final = ("host", "net", "port", "portrange", "proto")
_EXPECTED: Final = "host, net, port, portrange, proto, src, dst, ip, ip6, tcp, udp, icmp, icmp6, not or ("

_DEEPEST: Final = 50

_TOKEN = re.compile(r"&&|\|\||[!()]|[^\s()!&|]+|[&|]")
_SHORT_NET = re.compile(r"[0-9]+(\.[0-9]+){0,2}")
_SPELLINGS = {"&&": "and", "||": "or", "!": "not"}


class Key(NamedTuple):
    """Five-tuple of a flow: IP version, addresses as numbers, protocol, ports."""

    version: int
    src: int
    dst: int
    protocol: int
    src_port: int
    dst_port: int


Test = Callable[[Key], bool]


@dataclass(frozen=True)
class _Qualifiers:
    """The keywords before an id. protocol: a key of _KEYWORDS or _VERSIONS. direction: src, dst, or, and."""

    protocol: str | None = None
    direction: str | None = None
    kind: str | None = None


@dataclass(frozen=True)
class _Token:
    text: str
    position: int  # of its first character, from 1

    @property
    def word(self) -> str:
        return _SPELLINGS.get(self.text, self.text)


class FlowFilter:
    """The flows that an expression keeps."""

    def __init__(self, test: Test) -> None:
        self._test = test

    def keeps(self, src_ip: str, dst_ip: str, protocol: int, src_port: int, dst_port: int) -> bool:
        """Whether the filter keeps the flow of that five-tuple. Addresses as text, ports 0 for protocols without."""
        version, src = _numbers(src_ip)
        return self._test(Key(version, src, _numbers(dst_ip)[1], protocol, src_port, dst_port))


def parse(expression: str) -> FlowFilter:
    """The filter of an expression. Raises UsageError with the position of the error and the words expected there."""
    return FlowFilter(_Parser(expression).parse())


def apply_filter(facts: CaptureFacts, flow_filter: FlowFilter) -> None:
    """Set the column `kept` of the file's flows."""
    flows = facts.flows
    columns = [flows[name].to_pylist() for name in ("src_ip", "dst_ip", "protocol", "src_port", "dst_port")]
    kept = pa.array([flow_filter.keeps(*key) for key in zip(*columns, strict=True)], pa.bool_())
    facts.flows = flows.set_column(flows.schema.get_field_index("kept"), "kept", kept)


@lru_cache(1 << 16)
def _numbers(address: str) -> tuple[int, int]:
    parsed = ipaddress.ip_address(address)
    return parsed.version, int(parsed)


class _Parser:
    """Recursive descent over the tokens. The methods named for a rule return its test and its last qualifiers."""

    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._tokens = [_Token(match[0], match.start() + 1) for match in _TOKEN.finditer(expression)]
        self._at = self._depth = 0

    def parse(self) -> Test:
        """The test of the whole expression. Raises UsageError."""
        if not self._tokens:
            raise UsageError(f"the filter is empty; write for example --filter 'tcp port 5000' (expected {_EXPECTED})")
        test, _ = self._alternatives(None)
        if self._next() is not None:
            self._fail("and, or, or the end")
        return test

    # --- tokens

    def _next(self, ahead: int = 0) -> str | None:
        at = self._at + ahead
        return self._tokens[at].word if at < len(self._tokens) else None

    def _take(self, *words: str) -> str | None:
        """The next word, passed by, if it is one of these."""
        word = self._next()
        if word not in words:
            return None
        self._at += 1
        return word

    def _fail(self, expected: str, back: int = 0) -> NoReturn:
        """Raise UsageError at the next token, or at the one `back` before it."""
        at = self._at - back
        if at < len(self._tokens):
            token = self._tokens[at]
            where = f"at character {token.position}, {token.text!r}"
        else:
            where = "at its end"
        raise UsageError(f"filter {self._expression!r}: {where}: expected {expected}")

    # --- rules

    def _alternatives(self, inherited: _Qualifiers | None) -> tuple[Test, _Qualifiers | None]:
        first, last = self._term(inherited)
        others = []
        while operator := self._take("and", "or"):
            test, last = self._term(last)
            others.append((operator == "and", test))
        return (_chain(first, others) if others else first), last

    def _term(self, inherited: _Qualifiers | None) -> tuple[Test, _Qualifiers | None]:
        negated = False
        while self._take("not"):
            negated = not negated
        test, last = self._parenthesis(inherited) if self._take("(") else self._primitive(inherited)
        return (_negation(test) if negated else test), last

    def _parenthesis(self, inherited: _Qualifiers | None) -> tuple[Test, _Qualifiers | None]:
        self._depth += 1
        if self._depth > _DEEPEST:
            self._fail(f"at most {_DEEPEST} nested parentheses", back=1)
        inner = self._alternatives(inherited)
        if not self._take(")"):
            self._fail("and, or, or )")
        self._depth -= 1
        return inner

    def _primitive(self, inherited: _Qualifiers | None) -> tuple[Test, _Qualifiers | None]:
        begin = self._at
        protocol = self._take(*_VERSIONS, *_KEYWORDS)
        direction = self._direction()
        kind = self._take(*_TYPES)
        found = _Qualifiers(protocol, direction, kind)
        if protocol and not direction and not kind and not self._is_id():
            return _of_protocol(protocol), None
        if self._at == begin:
            if inherited is None or not self._is_id():
                self._fail(_EXPECTED)
            found = inherited
        self._check(found, self._at - begin)
        if begin < self._at and self._take("("):  # host (A or B)
            return self._parenthesis(found)
        return self._id(found), found

    def _direction(self) -> str | None:
        first = self._take("src", "dst")
        other = {"src": "dst", "dst": "src"}.get(first or "")
        if other and self._next() in ("and", "or") and self._next(1) == other:
            operator = self._take("and", "or")
            self._take(other)
            return operator
        return first

    def _is_id(self) -> bool:
        return self._next() not in (None, "and", "or", "not", "(", ")", *_TYPES, *_VERSIONS, *_KEYWORDS, "src", "dst")

    def _check(self, found: _Qualifiers, back: int) -> None:
        """Raise UsageError for keywords that do not go together."""
        if found.kind in ("port", "portrange"):
            if found.protocol not in _WITH_PORTS:
                self._fail(f"tcp, udp or sctp before {found.kind}", back)
        elif found.protocol in _KEYWORDS and found.kind is None:
            ports = "port or portrange" if found.protocol in _WITH_PORTS else "and, or, or the end"
            self._fail(f"{ports}; for a host write '{found.protocol} and host ...'")
        elif found.protocol in _KEYWORDS:
            self._fail(f"ip or ip6 before {found.kind}; for both write '{found.protocol} and ...'", back)
        if found.kind == "proto" and found.direction:
            self._fail("proto without src or dst", back)

    # --- ids

    def _id(self, qualifiers: _Qualifiers) -> Test:
        kind = qualifiers.kind or "host"
        if kind == "proto":
            return _numbered_protocol(self._protocol_number(), _VERSIONS.get(qualifiers.protocol or ""))
        if kind in ("port", "portrange"):
            low, high = self._ports(kind)
            return _ports(low, high, qualifiers)
        network = self._host() if kind == "host" else self._net()
        version = _VERSIONS.get(qualifiers.protocol or "", network.version)
        if version != network.version:
            self._fail(f"an IPv{version} address", back=1)
        return _network(network, qualifiers.direction)

    def _text(self, expected: str) -> str:
        if self._next() in (None, "and", "or", "not", "(", ")"):
            self._fail(expected)
        self._at += 1
        return self._tokens[self._at - 1].text

    def _protocol_number(self) -> int:
        expected = f"a protocol's number from 0 to 255 or one of {', '.join(_PROTOCOLS)}"
        text = self._text(expected).removeprefix("\\")
        number = _PROTOCOLS.get(text, int(text) if _is_number(text) else 256)
        if number > 255:
            self._fail(expected, back=1)
        return number

    def _ports(self, kind: str) -> tuple[int, int]:
        expected = "a port from 0 to 65535 (names are not resolved)"
        if kind == "portrange":
            expected = "two ports from 0 to 65535 as N-M"
        first, dash, last = self._text(expected).partition("-")
        parts = [first, last] if dash else [first]
        if (dash and kind == "port") or not all(_is_number(part) and int(part) < 65536 for part in parts):
            self._fail(expected, back=1)
        low, high = sorted((int(parts[0]), int(parts[-1])))
        return low, high

    def _host(self) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
        expected = "an IPv4 or IPv6 address (names are not resolved; for a network write net)"
        text = self._text(expected)
        try:
            return ipaddress.ip_network(text if "/" not in text and "%" not in text else "")
        except ValueError:
            self._fail(expected, back=1)

    def _net(self) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
        expected = (
            "a network like 10.1.0.0/16, 10.1, 10.1.0.0 mask 255.255.0.0 or fd00::/8, without bits after the mask"
        )
        address, _, length = self._text(expected).partition("/")
        at = self._at
        if self._take("mask"):
            length = self._mask_length()
        if _SHORT_NET.fullmatch(address):  # 10.1 is 10.1.0.0/16
            given = address.count(".") + 1
            address, length = address + ".0" * (4 - given), length or str(8 * given)
        try:
            return ipaddress.ip_network(f"{address}/{length}" if length else address)
        except ValueError:
            self._fail(expected, back=self._at - at + 1)

    def _mask_length(self) -> str:
        expected = "a mask like 255.255.0.0"
        text = self._text(expected)
        try:
            bits = f"{int(ipaddress.IPv4Address(text)):032b}"
        except ValueError:
            bits = "01"
        if "01" in bits:
            self._fail(expected, back=1)
        return str(bits.count("1"))


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[0-9]{1,9}", text) is not None


# --- tests


def _chain(first: Test, others: list[tuple[bool, Test]]) -> Test:
    """Tests from left to right, each with whether it is joined by `and`; no recursion, however many."""

    def test(key: Key) -> bool:
        result = first(key)
        for is_and, other in others:
            result = (result and other(key)) if is_and else (result or other(key))
        return result

    return test


def _negation(test: Test) -> Test:
    return lambda key: not test(key)


def _of_protocol(name: str) -> Test:
    if name in _VERSIONS:
        version = _VERSIONS[name]
        return lambda key: key.version == version
    number, only = _KEYWORDS[name]
    return _numbered_protocol(number, only)


def _numbered_protocol(number: int, version: int | None) -> Test:
    return lambda key: key.protocol == number and version in (None, key.version)


def _directed(direction: str | None, source: Test, destination: Test) -> Test:
    if direction == "src":
        return source
    if direction == "dst":
        return destination
    if direction == "and":
        return lambda key: source(key) and destination(key)
    return lambda key: source(key) or destination(key)


def _ports(low: int, high: int, qualifiers: _Qualifiers) -> Test:
    protocols = _WITH_PORTS[qualifiers.protocol]
    inside = _directed(
        qualifiers.direction, lambda key: low <= key.src_port <= high, lambda key: low <= key.dst_port <= high
    )
    return lambda key: key.protocol in protocols and inside(key)


def _network(network: ipaddress.IPv4Network | ipaddress.IPv6Network, direction: str | None) -> Test:
    version, mask, prefix = network.version, int(network.netmask), int(network.network_address)
    inside = _directed(direction, lambda key: key.src & mask == prefix, lambda key: key.dst & mask == prefix)
    return lambda key: key.version == version and inside(key)
