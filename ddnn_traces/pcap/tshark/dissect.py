"""One packet as tshark dissects it: the flow it belongs to, by the rules of docs/packets.md.

tshark reports the fields of each header; sizes and offsets are derived here, from original lengths and the sizes of the
headers in front.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from itertools import pairwise
from typing import Any

from ddnn_traces.pcap.link_types import BASE_TRANSPORT, ERF_TYPES, LINK_TYPES, OF_WIRESHARK
from ddnn_traces.pcap.tshark.flows import SYN, Encapsulation, Fragment, Packet, Roce, Segment, captured_at

TCP, UDP, GRE = 6, 17, 47
IPIP = {4: "ip", 41: "ipv6"}
VXLAN_PORTS, GENEVE_PORT, ROCE_PORT = (4789, 8472), 6081, 4791
VXLAN_GPE_PORT, GTP_U_PORT = 4790, 2152
_ROUTE_HEADER_BYTES = 40
_MOST_TUNNELS = 4
_LAST_TIME = 2**63 - 1
NOT_IP, MALFORMED, CUT_SHORT, UNKNOWN_LINK = "not_ip", "malformed", "cut_short", "unknown_link_type"

#: Header bytes of link-layer protocols, by their names in frame.protocols. MPLS: of an entry.
_LINK_HEADER_BYTES = {
    "ethertype": 0, "vlan": 4, "ieee8021ad": 4, "mpls": 4, "pppoes": 6, "ppp": 2, "pwethheuristic": 0, "pwethnocw": 0,
    "pwethcw": 4, "llc": 8, "pcap_pktdata": 0, **{link.layer: link.size for link in reversed(LINK_TYPES) if link.layer},
}  # fmt: skip
#: Types of ERF with four bytes more (Wireshark's wiretap/pcap-common.c).
_MULTI_CHANNEL = (5, 6, 7, 8, 9, 12, 17, 18)
_NO_DISSECTOR = ("", "data", "user_dlt")

#: IPv6 extension headers (RFC 8200): layer, field of the next header, field of the length; length n is
#: (n + first) * unit bytes (RFC 4302 for AH, RFC 6275 for Mobility).
_EXTENSIONS = {
    0: ("hopopts", "nxt", "len", 1, 8),
    43: ("routing", "nxt", "len", 1, 8),
    44: ("fraghdr", "nxt", None, 1, 8),
    51: ("ah", "next_header", "length", 2, 4),
    60: ("dstopts", "nxt", "len", 1, 8),
    135: ("mipv6", "proto", "hlen", 1, 8),
}
_EXTENSION_NAMES = ("ipv6.hopopts", "ipv6.routing", "ipv6.fraghdr", "ipv6.dstopts", "ah", "mipv6")

#: The layers, and trees inside them, that tshark prints; printing takes most of its time.
SHOWN = (
    "frame ip ipv6 ipv6.hopopts ipv6.routing ipv6.fraghdr ipv6.dstopts ah mipv6 tcp tcp.options "
    "tcp.options.mss tcp.options.wscale udp infiniband mpls ppp llc ppi gre erspan vxlan geneve "
    "gtp erf sll"
)


class Skipped(Exception):
    """The packet is in no flow. The argument is one of capture_facts.SKIP_REASONS."""


@dataclass(frozen=True, slots=True)
class _Layer:
    """A protocol of frame.protocols: the fields that tshark printed, and the bytes of its header (None: unknown)."""

    name: str
    fields: Any
    size: int | None


@dataclass(frozen=True, slots=True)
class _Datagram:
    """An IP header. offset: where in the frame it begins, None after a header of unknown size. around: its tunnel.

    payload: bytes on the wire after all IP headers. fragment: None for a whole datagram.
    """

    offset: int | None
    around: Encapsulation | None
    src_ip: str
    dst_ip: str
    protocol: int
    ip_bytes: int
    payload: int
    fragment: Fragment | None
    ecn: int | None

    @property
    def payload_offset(self) -> int | None:
        """Where in the frame the payload begins."""
        return None if self.offset is None else self.offset + self.ip_bytes - self.payload


def dissect(packet: Any, open_tunnels: bool = True) -> Packet:
    """The flow's part of a pyshark packet: the innermost IP packet that can be read, or the outermost.

    Raises Skipped where the outermost one cannot.
    """
    link, levels = _levels(packet)
    if not levels:
        raise Skipped(_why_not_ip(packet, link))
    datagram = _read_ip(packet, levels[0][0], _sum_of_sizes(0, link), None)
    found = _read_transport(packet, datagram, levels[0])
    for outer, inner in pairwise(levels[: _MOST_TUNNELS + 1]):
        opened = _tunnel(datagram, outer[1:], inner[0].name) if open_tunnels else None
        if opened is None:
            break
        encapsulation, offset = opened
        try:
            datagram = _read_ip(packet, inner[0], offset, encapsulation)
            inside = _read_transport(packet, datagram, inner)
        except Skipped:
            break
        if found.fragment and inside.fragment:
            break
        found = replace(inside, fragment=found.fragment or inside.fragment)
    number = _interface(packet)
    return found if number is None else captured_at(found, number)


def _interface(packet: Any) -> int | None:
    """The number of the interface, where the link type tells it."""
    link = OF_WIRESHARK.get(encapsulation_type(packet))
    return None if link is None or link.interface_at is None else _number(packet.sll, "ifindex")


# --- layers


def _levels(packet: Any) -> tuple[list[_Layer], list[list[_Layer]]]:
    """Layers in front of the first IP header, and from each IP header to the next. InfiniBand's own is one, too."""
    link: list[_Layer] = []
    levels: list[list[_Layer]] = []
    before = ""
    for layer in _layers(packet):
        is_routed = layer.name == "infiniband" and before != "udp" and not _is_raw(layer.fields)
        before = layer.name
        if layer.name in ("ip", "ipv6") or is_routed:
            levels.append([layer])
        elif levels:
            levels[-1].append(layer)
        else:
            link.append(layer)
    return link, levels


def _layers(packet: Any) -> Iterator[_Layer]:
    """Protocols in the order of the frame, which distinguishes layers that occur twice."""
    printed = {layer.layer_name: [layer, *layer.duplicate_layers] for layer in packet.layers}
    for raw in filter(_is_raw, printed.get("infiniband", [])):  # what it holds is printed inside of it
        for name in SHOWN.split():
            with suppress(AttributeError):
                nested = raw.get_field(name)
                printed.setdefault(name, []).extend(nested if isinstance(nested, list) else [nested])
    for name in _text(packet.frame_info, "protocols").split(":"):
        size = _LINK_HEADER_BYTES.get(name)
        waiting = printed.get(name)
        fields = waiting.pop(0) if waiting else None
        link = OF_WIRESHARK.get(encapsulation_type(packet)) if name == "sll" else None
        if link and link.layer == name:  # two link types have a layer of that name
            size = link.size
        elif name in _SIZED_BY_FIELDS and fields is not None:
            size = _SIZED_BY_FIELDS[name](fields)
        elif name == "mpls" and size:
            last = fields
            while waiting and _number_if_any(last, "bottom") == 0:  # one protocol, one layer an entry
                last = waiting.pop(0)
                size += 4
        yield _Layer(name, fields, size)
        if name == "udp" and printed.get("vxlan") and _number_if_any(fields, "dstport") == VXLAN_GPE_PORT:
            yield _Layer("vxlan_gpe", printed["vxlan"].pop(0), None)  # frame.protocols does not name it


def _ppp_bytes(ppp: Any) -> int:
    """Of the protocol (taken as two bytes, for tshark does not show one) and what may be before it."""
    if _number_if_any(ppp, "protocol") is None:
        return 0  # C-HDLC follows
    is_framed = _number_if_any(ppp, "address") is not None
    return 2 + 2 * is_framed


_SIZED_BY_FIELDS: dict[str, Callable[[Any], int | None]] = {
    "ppp": _ppp_bytes,
    "llc": lambda llc: 3 if _number_if_any(llc, "oui") is None else 8,
    "ppi": lambda ppi: _number_if_any(ppi, "length"),
    "infiniband": lambda infiniband: {0: 12, 1: 8}.get(_following(infiniband)),
}


def _following(infiniband: Any) -> int:
    """What follows InfiniBand's local route header; -1 without one."""
    header = _bytes(infiniband, "lrh")
    return header[1] & 3 if header else -1


def _is_raw(infiniband: Any) -> bool:
    """Whether InfiniBand's headers are around an IP packet, or another one with an EtherType."""
    return infiniband is not None and _following(infiniband) in (0, 1)


def _why_not_ip(packet: Any, link: list[_Layer]) -> str:
    if [layer.name for layer in link[:1]] in ([name] for name in _NO_DISSECTOR):
        return UNKNOWN_LINK
    if all(layer.size is not None for layer in link):  # it might still have become IP
        if "_ws.short" in packet:
            return CUT_SHORT
        if "_ws.malformed" in packet:
            return MALFORMED
    return NOT_IP


def _sum_of_sizes(offset: int | None, layers: list[_Layer]) -> int | None:
    """Where in the frame the layers end that begin at the offset; None where that is unknown."""
    for layer in layers:
        if offset is None or layer.size is None:
            return None
        offset += layer.size
    return offset


# --- IP


def _read_ip(packet: Any, layer: _Layer, offset: int | None, around: Encapsulation | None) -> _Datagram:
    if layer.fields is None:  # tshark's dissector of IPv4 has passed it on to that of IPv6
        raise Skipped(_why_unread(packet))
    try:
        if layer.name == "infiniband":
            return _read_route_header(packet, layer.fields, offset, around)
        if layer.name == "ip":
            return _read_ipv4(packet, layer.fields, offset, around)
        return _read_ipv6(packet, layer.fields, offset, around)
    except AttributeError:  # pyshark raises it for a field that tshark did not reach
        raise Skipped(_why_unread(packet)) from None


def _why_unread(packet: Any) -> str:
    return CUT_SHORT if "_ws.short" in packet else MALFORMED


def _ip_bytes(packet: Any, offset: int | None, declared: int, empty: int, largest: int) -> int:
    """IP length as the header declares it, unless that is `empty` or could not hold the frame."""
    if offset is None:
        return declared
    available = int(packet.length) - offset
    return available if declared == empty or declared > available or available > largest else declared


def _read_ipv4(packet: Any, ip: Any, offset: int | None, around: Encapsulation | None) -> _Datagram:
    if _number(ip, "version") != 4:
        raise Skipped(MALFORMED)
    ip_bytes = _ip_bytes(packet, offset, _number(ip, "len"), 0, 65535)
    payload = ip_bytes - _number(ip, "hdr_len")
    if payload < 0:
        raise Skipped(MALFORMED)
    src, dst, protocol = _address(_text(ip, "src")), _address(_text(ip, "dst")), _number(ip, "proto")
    start, more = _number(ip, "frag_offset") * 8, _number(ip, "flags") & 1 == 1
    fragment = None
    if start or more:
        fragment = Fragment((around, src, dst, protocol, _number(ip, "id")), start, payload, more)
    return _Datagram(offset, around, src, dst, protocol, ip_bytes, payload, fragment, _number(ip, "dsfield") & 3)


def _read_ipv6(packet: Any, ip: Any, offset: int | None, around: Encapsulation | None) -> _Datagram:
    if _number(ip, "version") != 6:
        raise Skipped(MALFORMED)
    ip_bytes = _ip_bytes(packet, offset, 40 + _number(ip, "plen"), 40, 65575)
    src, dst = _address(_text(ip, "src")), _address(_text(ip, "dst"))
    payload = ip_bytes - 40
    protocol = _number(ip, "nxt")
    fragment: Fragment | None = None
    headers: dict[int, list[Any]] = {}  # extension headers not yet passed; some may occur twice
    while protocol in _EXTENSIONS and not (fragment and fragment.offset):
        name, following, length, first, unit = _EXTENSIONS[protocol]
        if protocol not in headers:
            layer = ip.get_field(name)
            headers[protocol] = list(layer) if isinstance(layer, list) else [layer]
        if not headers[protocol]:
            raise Skipped(_why_unread(packet))
        header = headers[protocol].pop(0)
        payload -= (first + (_number(header, length) if length else 0)) * unit
        after = _number(header, following)
        if protocol == 44:
            start, more = _number(header, "offset") * 8, _flag(header, "more")
            if start or more:
                fragment = Fragment((around, src, dst, after, _number(header, "ident")), start, payload, more)
        protocol = after
    if payload < 0:
        raise Skipped(MALFORMED)
    return _Datagram(offset, around, src, dst, protocol, ip_bytes, payload, fragment, _number(ip, "tclass") & 3)


def _read_route_header(packet: Any, infiniband: Any, offset: int | None, around: Encapsulation | None) -> _Datagram:
    """InfiniBand's global route header, in IPv6's layout, or the local one alone. GIDs that both map IPv4 addresses are
    these."""
    header, local = _bytes(infiniband, "grh"), _bytes(infiniband, "lrh")
    if local:
        if local[1] & 3 == 2:
            return _read_local_route(packet, local, offset, around)
        offset = None if offset is None else offset + len(local)
    if len(header) < _ROUTE_HEADER_BYTES:
        raise Skipped(CUT_SHORT)
    if header[6] != BASE_TRANSPORT:
        raise Skipped(NOT_IP)
    if header[0] >> 4 != 6:
        raise Skipped(MALFORMED)
    size = _ROUTE_HEADER_BYTES
    ip_bytes = _ip_bytes(packet, offset, size + int.from_bytes(header[4:6], "big"), size, size + 0xFFFF)
    ends = ipaddress.IPv6Address(header[8:24]), ipaddress.IPv6Address(header[24:40])
    mapped = [end.ipv4_mapped for end in ends]
    src, dst = (str(end) for end in (mapped if all(mapped) else ends))
    return _Datagram(offset, around, src, dst, BASE_TRANSPORT, ip_bytes, ip_bytes - size, None, None)


def _read_local_route(packet: Any, header: bytes, offset: int | None, around: Encapsulation | None) -> _Datagram:
    """Its LIDs are the end of addresses that no host has (RFC 6666); its length is in units of 4 bytes."""
    words = int.from_bytes(header[4:6], "big") & 0x7FF
    size = _ip_bytes(packet, offset, 4 * words, 0, 4 * 0x7FF + int(packet.length)) - len(header)
    if size < 0:
        raise Skipped(MALFORMED)
    src, dst = (f"100::{int.from_bytes(lid, 'big'):x}" for lid in (header[6:8], header[2:4]))
    begin = None if offset is None else offset + len(header)
    return _Datagram(begin, around, _address(src), _address(dst), BASE_TRANSPORT, size, size, None, None)


# --- transport


def _read_transport(packet: Any, datagram: _Datagram, level: list[_Layer]) -> Packet:
    """The packet of this IP header, whatever it may carry in a tunnel."""
    is_later = datagram.fragment is not None and datagram.fragment.offset > 0
    found = Packet(
        datagram.src_ip, datagram.dst_ip, datagram.protocol, 0, 0, datagram.ip_bytes, datagram.payload,
        datagram.around, datagram.fragment, ecn=None if is_later else datagram.ecn,
    )  # fmt: skip
    if level[0].name == "infiniband":
        return replace(found, roce=_read_base_transport(level[0].fields))
    if datagram.protocol not in (TCP, UDP) or is_later:
        return found
    name = "tcp" if datagram.protocol == TCP else "udp"
    fields = next((layer.fields for layer in level if layer.name == name), None)
    if fields is None:
        raise Skipped(_why_unread(packet))
    try:
        found = replace(found, src_port=_number(fields, "srcport"), dst_port=_number(fields, "dstport"))
    except AttributeError:
        raise Skipped(_why_unread(packet)) from None
    found = _read_tcp(found, fields) if datagram.protocol == TCP else _read_udp(found, fields)
    if found.payload_bytes < 0:
        raise Skipped(MALFORMED)
    return found


def _read_tcp(found: Packet, tcp: Any) -> Packet:
    header = _number_if_any(tcp, "hdr_len")
    header = 20 if header is None else header
    if header < 20:
        raise Skipped(MALFORMED)
    found = replace(found, payload_bytes=found.payload_bytes - header)
    flags, sequence, acknowledgement = (_number_if_any(tcp, name) for name in ("flags", "seq_raw", "ack_raw"))
    if flags is None or sequence is None or acknowledgement is None:
        return found
    flags &= 0xFF  # tshark includes the bits in front of the byte
    mss, scale = (_option(tcp, *names) if flags & SYN else None for names in (("mss", "mss_val"), ("wscale", "shift")))
    window = _number_if_any(tcp, "window_size_value")
    return replace(found, segment=Segment(sequence, acknowledgement, flags, mss, scale, window))


def _option(tcp: Any, name: str, value: str) -> int | None:
    try:
        option = tcp.get_field("options_tree").get_field(f"{name}_tree")
        return _number(option[0] if isinstance(option, list) else option, value)
    except AttributeError:
        return None


def _read_udp(found: Packet, udp: Any) -> Packet:
    """RoCEv2's base transport header is in the captured payload; tshark's own dissector needs all 12 bytes of it."""
    found = replace(found, payload_bytes=found.payload_bytes - 8)
    if found.dst_port != ROCE_PORT:
        return found
    return replace(found, roce=Roce.parse(_bytes(udp, "payload")))


#: What may follow a base transport header, before the data.
_EXTENDED = ("rdeth", "deth", "xrceth", "reth", "atomiceth", "aeth")


def _read_base_transport(infiniband: Any) -> Roce | None:
    """RoCEv1's; tshark needs all 12 bytes of it."""
    header = _bytes(infiniband, "bth")
    return Roce.parse(header + b"".join(_bytes(infiniband, name) for name in _EXTENDED)) if header else None


def _bytes(layer: Any, name: str) -> bytes:
    """A field of bytes; empty without."""
    try:
        return bytes.fromhex(_text(layer, name).replace(":", ""))
    except AttributeError:
        return b""


# --- tunnels

#: kind, source and destination port, identifier, bytes of the tunnel's headers, number of layers that these are
_Opened = tuple[str, int, int, int | None, int, int]


def _tunnel(datagram: _Datagram, layers: list[_Layer], inner: str) -> tuple[Encapsulation, int | None] | None:
    """The tunnel between two IP headers, and where in the frame the second header begins.

    None where there is no tunnel, as in an ICMP error, or one that docs/packets.md does not open.
    """
    layers = [layer for layer in layers if layer.name not in _EXTENSION_NAMES]
    kind = ":".join(layer.name for layer in layers[:2])
    try:
        if not layers and IPIP.get(datagram.protocol) == inner:
            opened: _Opened = "ipip", 0, 0, None, 0, 0
        elif layers and layers[0].name == "gre" and datagram.protocol == GRE:
            opened = _gre(layers)
        elif kind == "udp:vxlan":
            opened = _vxlan(layers)
        elif kind == "udp:geneve":
            opened = _geneve(layers)
        elif kind == "udp:vxlan_gpe":
            opened = _vxlan_gpe(layers)
        elif kind == "udp:gtp" and len(layers) == 2:
            opened = _gtp_u(layers)
        else:
            return None
    except (AttributeError, _NotOpened):
        return None
    name, src_port, dst_port, identifier, size, passed = opened
    inside = layers[passed:]
    if any(layer.size is None for layer in inside):
        return None
    begin = datagram.payload_offset
    offset = None if begin is None else _sum_of_sizes(begin + size, inside)
    ends = datagram.src_ip, datagram.dst_ip, datagram.protocol
    return Encapsulation(name, *ends, src_port, dst_port, identifier, datagram.around), offset


class _NotOpened(Exception):
    """A tunnel of a version or with options that docs/packets.md does not open."""


def _gre(layers: list[_Layer]) -> _Opened:
    gre = layers[0].fields
    flags = _number(gre, "flags_and_version")
    if flags & 0xE007 == 0x2001:
        size = 8 + 4 * (flags >> 12 & 1) + 4 * (flags >> 7 & 1)
        return "pptp", 0, 0, _number(gre, "key.call_id"), size, 1
    if flags & 0x4007:  # routing, version
        raise _NotOpened
    size = 4 + 4 * (flags >> 15 & 1) + 4 * (flags >> 13 & 1) + 4 * (flags >> 12 & 1)
    key = _number(gre, "key") if flags & 0x2000 else None
    if len(layers) < 2 or layers[1].name != "erspan":
        return "gre", 0, 0, key, size, 1
    if _number(gre, "proto") == 0x22EB:
        size += 20 if _flag(layers[1].fields, "o") else 12
    elif flags & 0x1000:
        size += 8
    return "gre", 0, 0, key, size, 2


def _vxlan(layers: list[_Layer]) -> _Opened:
    udp, vxlan = layers[0].fields, layers[1].fields
    ports = _number(udp, "srcport"), _number(udp, "dstport")
    if ports[1] not in VXLAN_PORTS or not _number(vxlan, "flags") & 0x0800:
        raise _NotOpened
    return "vxlan", *ports, _number(vxlan, "vni"), 16, 2


def _geneve(layers: list[_Layer]) -> _Opened:
    udp, geneve = layers[0].fields, layers[1].fields
    ports = _number(udp, "srcport"), _number(udp, "dstport")
    if ports[1] != GENEVE_PORT or _number(geneve, "version"):
        raise _NotOpened
    return "geneve", *ports, _number(geneve, "vni"), 16 + _number(geneve, "option.length"), 2


def _vxlan_gpe(layers: list[_Layer]) -> _Opened:
    udp, vxlan = layers[0].fields, layers[1].fields
    flags = _number(vxlan, "flags")
    if flags & 0x35 != 4:
        raise _NotOpened
    identifier = _number(vxlan, "vni") if flags & 8 else None
    return "vxlan_gpe", _number(udp, "srcport"), VXLAN_GPE_PORT, identifier, 16, 2


def _gtp_u(layers: list[_Layer]) -> _Opened:
    """Extension headers are not in the size: tshark does not show theirs."""
    udp, gtp = layers[0].fields, layers[1].fields
    flags = _number(gtp, "flags")
    if flags & 0xF0 != 0x30 or _number(gtp, "message") != 255 or _number(udp, "dstport") != GTP_U_PORT:
        raise _NotOpened
    size = 16 + 4 * bool(flags & 7)
    return "gtp_u", _number(udp, "srcport"), GTP_U_PORT, _number(gtp, "teid"), size, 2


# --- fields


def _text(layer: Any, name: str) -> str:
    """A field's text, the first one where it is repeated; AttributeError where there is none."""
    value = layer.get_field(name)
    return str(value[0] if isinstance(value, list) else value)


def _number(layer: Any, name: str) -> int:
    """A field as a number; tshark prints some in hexadecimal."""
    return int(_text(layer, name), 0)


def _number_if_any(layer: Any, name: str) -> int | None:
    try:
        return _number(layer, name)
    except AttributeError:
        return None


def _flag(layer: Any, name: str) -> bool:
    return _text(layer, name) in ("1", "True")  # tshark 4.0; newer


@lru_cache(maxsize=1 << 16)
def _address(text: str) -> str:
    """The address in Python's form (RFC 5952), which is that of the tables."""
    return str(ipaddress.ip_address(text))


def captured_bytes(packet: Any) -> int:
    """Bytes of the frame that are in the file."""
    return _number(packet.frame_info, "cap_len")


def left_out(packet: Any) -> int:
    """Bytes of the frame that Wireshark's reader takes off: of ERF its header, extension headers, and what is before
    the frame in it."""
    link = OF_WIRESHARK.get(encapsulation_type(packet))
    if link is None or link.layer != "erf":
        return link.left_out if link else 0
    kind, extensions = _number(packet.erf, "types"), 0
    if kind & 0x80:
        types = packet.erf.get_field("ehdr.types")
        extensions = len(types) if isinstance(types, list) else 1
    kind &= 0x7F
    return 16 + 8 * extensions + (4 if kind in _MULTI_CHANNEL else ERF_TYPES.get(kind, (0, 0))[1])


def encapsulation_type(packet: Any) -> int:
    """Wireshark's number of the link type."""
    return _number(packet.frame_info, "encap_type")


def time_ns(text: str) -> int | None:
    """Nanoseconds of frame.time_epoch: seconds with 9 decimals, or ISO 8601 with as many (tshark 4.2 and newer).

    None without a time, and for one outside 0 to 2^63 - 1.
    """
    if not text or text.startswith("-"):
        return None
    seconds, _, fraction = text.rstrip("Z").partition(".")
    try:
        whole = int(datetime.fromisoformat(seconds).replace(tzinfo=UTC).timestamp()) if "T" in seconds else int(seconds)
    except ValueError:  # a year after 9999, or no time of that form
        return None
    time = whole * 1_000_000_000 + int(fraction.ljust(9, "0"))
    return time if time <= _LAST_TIME else None
