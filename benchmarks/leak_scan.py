"""How often the leak scan takes random headers of cut-down captures for what must not be published.

    python benchmarks/leak_scan.py                  # 10 GB
    python benchmarks/leak_scan.py --gigabytes 0.1

Packets of Ethernet, IPv4 and TCP as a cut-down capture has them, between 12 hosts of a release. Identification,
checksums, ports, sequence numbers, window, urgent pointer and options are random: whatever is found is a false alarm.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

from ddnn_traces.capture_format import pcap_header
from ddnn_traces.release import leak_scan
from ddnn_traces.release.leak_scan.searched_words import address_texts, guids, hardware_texts, interface_id

PACKETS = 1 << 20
HOSTS = 12
#: Of a packet: the record's header, Ethernet, IPv4, TCP with 12 bytes of options.
SIZES = {"record": 16, "ethernet": 14, "ip": 20, "tcp": 32}
FRAME = sum(SIZES.values()) - SIZES["record"]


def searched_words() -> leak_scan.Words:
    """Twelve hosts with their addresses, hardware addresses (half of them as virtual machines have them) and names."""
    words = leak_scan.Words(times=[(1_700_000_000 * 10**9, 1_700_000_600 * 10**9)])
    for number in range(1, HOSTS + 1):
        words.texts |= dict.fromkeys(address_texts(f"10.10.0.{number}"), "an IP address")
        words.numbers.add(int.from_bytes([10, 10, 0, number], "big"))
        hardware = bytes([2, 0, 0, 0, 0, number]) if number % 2 else bytes([0x9C, 0xB6, 0xD0, 0x1A, 0x2B, number])
        words.texts |= dict.fromkeys(hardware_texts(hardware), "a hardware address")
        words.binary |= dict.fromkeys((hardware, interface_id(hardware), *guids(hardware)), "a hardware address")
        words.texts[f"gpu-node{number:02}"] = "name of a host"
    words.texts |= dict.fromkeys(("erika", "dave", "carola", "athena", "zeus"), "name of a user")
    return words


def records(rng: np.random.Generator, hosts: np.ndarray) -> bytes:
    """Records of packets between hosts, rows of 4 bytes."""
    made = rng.integers(0, 256, (PACKETS, sum(SIZES.values())), dtype=np.uint8)
    record, ethernet, ip, tcp = np.split(made, np.cumsum(list(SIZES.values()))[:-1], axis=1)
    source, destination = (hosts[rng.integers(0, HOSTS, PACKETS)] for _ in range(2))
    record[:] = np.frombuffer(b"".join(value.to_bytes(4, "little") for value in (1000, 0, FRAME, 1514)), np.uint8)
    ethernet[:, :2], ethernet[:, 2:6], ethernet[:, 6:8], ethernet[:, 8:12] = (2, 0), destination, (2, 0), source
    ethernet[:, 12:] = (8, 0)
    ip[:, :4], ip[:, 6:10], ip[:, 12:16], ip[:, 16:] = (0x45, 0, 5, 220), (0x40, 0, 64, 6), source, destination
    tcp[:, 12] = SIZES["tcp"] // 4 << 4
    return made.tobytes()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=10)
    wanted = parser.parse_args().gigabytes * 1e9
    rng = np.random.default_rng(1)
    hosts = rng.integers(0, 256, (HOSTS, 4), dtype=np.uint8)
    words = searched_words()
    read, alarms = 0, 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "worker-1.pcap"
        while read < wanted:
            read += path.write_bytes(pcap_header(65535, 1) + records(rng, hosts))
            for leak in leak_scan.scan(path.parent, words):
                alarms += 1
                print(leak)
    print(f"{alarms} false alarms in {read / 1e9:.1f} GB of random headers")


if __name__ == "__main__":
    main()
