"""The link types, by their numbers in the registry of tcpdump (https://www.tcpdump.org/linktypes.html).

All that the package must know of a link type to read it stands in LINK_TYPES: the packet loop, the cut of captures, the
search for hardware addresses and the pyshark engine follow from it. docs/packets.md has a row for each.
"""

from __future__ import annotations

from typing import NamedTuple

# How the IP header is found (compiled/headers.py), which stands `size` bytes after the start of the frame, or
# what the comment names does. UNKNOWN: not at all.
UNKNOWN = 0
ETHERTYPE = 1  # by the EtherType at `type_at`, or a length of IEEE 802.3
COOKED = 2  # by the protocol of Linux's cooked captures at `type_at`
VERSION = 3  # by the first nibble of the header
TYPE = 4  # by the EtherType at `type_at`, where no length can stand
PPP = 5  # a PPP frame, with or without HDLC's address and control bytes
PPP_PROTOCOL = 6  # a PPP protocol
PPPOE = 7  # a PPPoE header
LLC = 8  # an LLC header
PPI = 9  # a header of its own length, which names the link type of what follows
NFLOG = 10  # a message of Linux's netfilter
INFINIBAND = 11  # InfiniBand's local route header
ERF = 12  # the header of a record of Endace, whose type names the link type of what follows (ERF_TYPES)


class Hardware(NamedTuple):
    """Where the link header has hardware addresses of 6 bytes, of destination and source; None: it has none.

    length_at, length_bytes: where the length of the address stands; without, it is always 6.
    """

    destination: int | None
    source: int | None
    length_at: int | None = None
    length_bytes: int = 0


class Cut(NamedTuple):
    """What of the link header stays in a cut-down capture, beside the type of what follows.

    kept: first and last byte, exclusive. family_at: a byte that has the address family of BSD.
    """

    kept: tuple[int, int] = (0, 0)
    family_at: int | None = None


class LinkType(NamedTuple):
    """A link type that is read. Offsets and sizes in bytes of the frame.

    hardware: addresses that a release must not show: the leak scan collects them, and the cut makes others. cut: None:
    captures of this link type cannot be cut down. wireshark: its number in Wireshark (wiretap/wtap.h), None where that
    is another link type's. layer: the name of its header in tshark's frame.protocols, where that has `size` bytes.
    left_out: bytes of the frame that Wireshark's reader takes off. interface_at: where the number of the interface is,
    in 4 bytes.
    """

    number: int
    walk: int
    size: int
    hardware: Hardware
    cut: Cut | None
    wireshark: int | None
    type_at: int | None = None
    layer: str = ""
    left_out: int = 0
    interface_at: int | None = None


_NO_HARDWARE = Hardware(None, None)

LINK_TYPES = (
    LinkType(1, ETHERTYPE, 14, Hardware(0, 6), Cut(), 1, type_at=12, layer="eth"),
    LinkType(113, COOKED, 16, Hardware(None, 6, 4, 2), Cut(kept=(0, 4)), 25, type_at=14, layer="sll"),
    LinkType(
        276, COOKED, 20, Hardware(None, 12, 11, 1), Cut(kept=(4, 11)), 210, type_at=0, layer="sll", interface_at=4
    ),
    LinkType(0, VERSION, 4, _NO_HARDWARE, Cut(family_at=0), 15, layer="null"),
    LinkType(108, VERSION, 4, _NO_HARDWARE, Cut(family_at=3), 174, layer="null"),
    LinkType(101, VERSION, 0, _NO_HARDWARE, Cut(), 7, layer="raw"),
    LinkType(12, VERSION, 0, _NO_HARDWARE, Cut(), None),
    LinkType(14, VERSION, 0, _NO_HARDWARE, Cut(), None),
    LinkType(228, VERSION, 0, _NO_HARDWARE, Cut(), 129),
    LinkType(229, VERSION, 0, _NO_HARDWARE, Cut(), 130),
    LinkType(9, PPP, 0, _NO_HARDWARE, None, 4),
    LinkType(50, PPP, 0, _NO_HARDWARE, None, None),
    LinkType(204, PPP, 1, _NO_HARDWARE, None, 19, left_out=1),
    LinkType(166, PPP_PROTOCOL, 2, _NO_HARDWARE, None, None),
    LinkType(51, PPPOE, 0, _NO_HARDWARE, None, 139),
    LinkType(104, TYPE, 4, _NO_HARDWARE, None, 28, type_at=2, layer="chdlc"),
    LinkType(112, TYPE, 4, _NO_HARDWARE, None, None, type_at=2),
    LinkType(205, TYPE, 5, _NO_HARDWARE, None, None, type_at=3),
    LinkType(100, LLC, 0, _NO_HARDWARE, None, 10),
    LinkType(192, PPI, 0, _NO_HARDWARE, None, 97),  # those of the link type inside it are found
    LinkType(197, ERF, 0, _NO_HARDWARE, None, 98, layer="erf"),  # as 192; all of its header is left out
    LinkType(239, NFLOG, 0, _NO_HARDWARE, None, 141),
    LinkType(242, TYPE, 44, _NO_HARDWARE, None, 180, type_at=40, layer="ipoib"),
    LinkType(247, INFINIBAND, 8, _NO_HARDWARE, None, None),
)

#: So many interfaces are told apart, by the bits that a flow's key has for them.
INTERFACES = (1 << 16) - 1

#: The next header of InfiniBand's global route header: a base transport header follows.
BASE_TRANSPORT = 27

#: By the type of an ERF record (Wireshark's epan/dissectors/packet-erf.h): the link type of what it holds, and bytes
#: between it and the record's header. With C-HDLC or PPP, Ethernet, InfiniBand, IP; each also with a colour or a hash.
ERF_TYPES = {
    **dict.fromkeys((1, 10, 15, 19), (50, 0)), **dict.fromkeys((2, 11, 16, 20), (1, 2)), 21: (247, 0), 22: (228, 0),
    23: (229, 0),
}  # fmt: skip

#: By Wireshark's number.
OF_WIRESHARK = {each.wireshark: each for each in LINK_TYPES if each.wireshark is not None}


_NAMES = {
    0: "NULL", 1: "ETHERNET", 3: "AX25", 6: "IEEE802_5", 7: "ARCNET_BSD", 8: "SLIP", 9: "PPP", 10: "FDDI", 12: "RAW",
    14: "RAW", 50: "PPP_HDLC", 51: "PPP_ETHER", 100: "ATM_RFC1483", 101: "RAW", 104: "C_HDLC", 105: "IEEE802_11",
    107: "FRELAY", 108: "LOOP", 113: "LINUX_SLL", 114: "LTALK", 117: "PFLOG", 119: "IEEE802_11_PRISM",
    122: "IP_OVER_FC", 123: "SUNATM",
    127: "IEEE802_11_RADIOTAP", 129: "ARCNET_LINUX", 138: "APPLE_IP_OVER_IEEE1394", 139: "MTP2_WITH_PHDR", 140: "MTP2",
    141: "MTP3", 142: "SCCP", 143: "DOCSIS", 144: "LINUX_IRDA", **{147 + n: f"USER{n}" for n in range(16)},
    163: "IEEE802_11_AVS", 165: "BACNET_MS_TP", 166: "PPP_PPPD", 169: "GPRS_LLC", 177: "LINUX_LAPD", 182: "MFR",
    187: "BLUETOOTH_HCI_H4", 189: "USB_LINUX", 192: "PPI", 195: "IEEE802_15_4_WITHFCS", 196: "SITA", 197: "ERF",
    201: "BLUETOOTH_HCI_H4_WITH_PHDR", 202: "AX25_KISS", 203: "LAPD", 204: "PPP_WITH_DIR", 205: "C_HDLC_WITH_DIR",
    206: "FRELAY_WITH_DIR", 207: "LAPB_WITH_DIR", 209: "IPMB_LINUX", 210: "FLEXRAY", 212: "LIN",
    215: "IEEE802_15_4_NONASK_PHY", 220: "USB_LINUX_MMAPPED", 224: "FC_2", 225: "FC_2_WITH_FRAME_DELIMS", 226: "IPNET",
    227: "CAN_SOCKETCAN", 228: "IPV4", 229: "IPV6", 230: "IEEE802_15_4_NOFCS", 231: "DBUS", 235: "DVB_CI",
    236: "MUX27010",
    237: "STANAG_5066_D_PDU", 239: "NFLOG", 240: "NETANALYZER", 241: "NETANALYZER_TRANSPARENT", 242: "IPOIB",
    243: "MPEG_2_TS", 244: "NG40", 245: "NFC_LLCP", 247: "INFINIBAND", 248: "SCTP", 249: "USBPCAP", 250: "RTAC_SERIAL",
    251: "BLUETOOTH_LE_LL", 252: "WIRESHARK_UPPER_PDU", 253: "NETLINK", 254: "BLUETOOTH_LINUX_MONITOR",
    255: "BLUETOOTH_BREDR_BB", 256: "BLUETOOTH_LE_LL_WITH_PHDR", 257: "PROFIBUS_DL", 258: "PKTAP", 259: "EPON",
    260: "IPMI_HPM_2", 261: "ZWAVE_R1_R2", 262: "ZWAVE_R3", 263: "WATTSTOPPER_DLM", 264: "ISO_14443", 265: "RDS",
    266: "USB_DARWIN", 268: "SDLC", 270: "LORATAP", 271: "VSOCK", 272: "NORDIC_BLE", 273: "DOCSIS31_XRA31",
    274: "ETHERNET_MPACKET", 275: "DISPLAYPORT_AUX", 276: "LINUX_SLL2", 278: "OPENVIZSLA", 279: "EBHSCR",
    280: "VPP_DISPATCH", 281: "DSA_TAG_BRCM", 282: "DSA_TAG_BRCM_PREPEND", 283: "IEEE802_15_4_TAP", 284: "DSA_TAG_DSA",
    285: "DSA_TAG_EDSA", 286: "ELEE", 287: "ZWAVE_SERIAL", 288: "USB_2_0", 289: "ATSC_ALP", 290: "ETW",
    292: "ZBOSS_NCP",
}  # fmt: skip


def told_interface(number: int) -> int | None:
    """The interface of a flow, by its number in the link header: those that differ by a multiple of INTERFACES are one.

    None for 0, which is no interface's.
    """
    return (number - 1) % INTERFACES + 1 if number else None


def describe_links(link_types: str | None) -> str:
    """Numbers separated by commas, as in captures.link_types, with their names."""
    if not link_types:
        return "unknown link type"
    return ", ".join(f"link type {each} ({_NAMES.get(int(each), 'no name known')})" for each in link_types.split(","))
