"""Names of link types, as in the registry of tcpdump (https://www.tcpdump.org/linktypes.html)."""

from __future__ import annotations

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


def describe_links(link_types: str | None) -> str:
    """Numbers separated by commas, as in captures.link_types, with their names."""
    if not link_types:
        return "unknown link type"
    return ", ".join(f"link type {each} ({_NAMES.get(int(each), 'no name known')})" for each in link_types.split(","))
