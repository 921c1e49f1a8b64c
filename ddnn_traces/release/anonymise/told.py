"""What an anonymisation did and what it leaves, in sentences for the datasheet. One a kind of thing."""

from __future__ import annotations

from ddnn_traces.release import facts

_ADDRESSES = {
    "roles": "IP addresses became labels of the hosts' roles (worker-1), in every table of a run the same; addresses "
    "of hosts without a role, groups and tunnel ends became labels made with the key, the same in all runs.",
    "crypto-pan": "IP addresses were mapped by Crypto-PAn (prefix-preserving), in all runs the same; unspecified, "
    "loopback, limited-broadcast and well-known multicast addresses stayed, other multicast and link-local ones stayed "
    "such. All common prefixes are kept.",
    "kept": "",
}
_PORTS = {
    "kept": "",
    "permuted": "TCP and UDP ports were permuted within well-known (below 1,024), registered and ephemeral (from "
    "32,768 on) ones; 4789, 8472, 6081 (tunnels) and 4791 (RoCEv2) stayed.",
    "classed": "TCP and UDP ports became the first of their class: 1 (below 1,024), 1024 or 32768 (from there on); "
    "4789, 8472, 6081 (tunnels) and 4791 (RoCEv2) stayed.",
}
_TIMES = {
    "shifted": "All times were shifted into the future by one secret number of whole seconds; intervals, also between "
    "runs, are as they were.",
    "kept": "",
}
_ALWAYS = (
    "Names of hosts that say more than a role became labels; names of capture files became those of the hosts.",
    "Free text (what is wrong with a capture, parameters of the ingest) lost paths, addresses and names; a capture "
    "filter with numbers in it was withheld.",
    "The dataset's own record of its inputs (inputs.json), with names and times of files, is not in the release.",
)
_CAPTURES = (
    "Cut-down captures hold link, IP and transport headers with their original lengths, and zeros or nothing in place "
    "of payload, hardware addresses, TCP time stamps, identifications and whatever was not understood.",
)

_ADDRESSES_REMAIN = {
    "roles": "The role of each host and who talked to whom remain: that is what the data are for. Who knows the "
    "testbed knows which machine was the first worker.",
    "crypto-pan": "Crypto-PAn keeps which addresses share a prefix, and here the first three bits of each or more: "
    "who knows some pairs of real and mapped addresses, "
    "or can send packets of their choice into the capture, learns prefixes of others. In a subnet of a few hosts there "
    "is little to hide among.",
    "kept": "IP addresses are the real ones.",
}
_PORTS_REMAIN = {
    "kept": "Ports are the real ones, and tell services and programs.",
    "permuted": "Which flows share a port remains, and how often one is used tells well-known services.",
    "classed": "",
}
_TIMES_REMAIN = {
    "shifted": "Sub-second parts of times and all intervals remain: who has another record of the same training can "
    "find the offset. A day without a time of day (2026-01-31) in a name or a text is not searched for.",
    "kept": "Times are the real ones.",
}
_ALWAYS_REMAIN = (
    "Sizes, counts and timing of packets are the data themselves, and are like a fingerprint to whoever captured the "
    "same traffic elsewhere.",
    "Names of runs, frameworks, models and layers are the publisher's own words and stay.",
    "Identifiers of tunnels (VNI, GRE key) and queue pairs of RoCE stay.",
    "Names of hosts and users were searched for as words of their own: one that is glued to other letters, or has "
    "fewer than 4, is not found.",
    "SHA-256 of the original captures stay: who has an original can show that it is the one.",
)
_UNSEARCHED = (
    "Names of users and hosts, paths and hardware addresses that only the original captures and logs tell were not "
    "searched for, since these were not given when it was published.",
)


def told(addresses: str, ports: str, times: str, key_id: str, captures: bool = False) -> facts.Anonymisation:
    """The facts of an anonymisation. captures: whether the release has cut-down captures."""
    removed = (_ADDRESSES[addresses], _PORTS[ports], _TIMES[times], *_ALWAYS, *(_CAPTURES if captures else ()))
    chosen = (_ADDRESSES_REMAIN[addresses], _PORTS_REMAIN[ports], _TIMES_REMAIN[times])
    remaining = (*chosen, *_ALWAYS_REMAIN, *(() if captures else _UNSEARCHED))
    return facts.Anonymisation(
        addresses, ports, times, key_id, tuple(filter(None, removed)), tuple(filter(None, remaining))
    )
