"""A run as a run folder of basic-sim (github.com/snkas/basic-sim), the TCP flow simulator on ns-3.

The folder holds the flow schedule, a star of links as topology, and the configuration that names both. Each transfer is
a TCP flow that starts when it did in the run; the schedule has no dependencies.

Format: doc/tcp_flow_application.md and doc/ptop_topology.md of basic-sim; its reader is
helper/apps/tcp-flow-schedule-reader.cc and model/core/topology-ptop.cc.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from ddnn_traces.store.whole_files import whole_file

if TYPE_CHECKING:
    from ddnn_traces.export.simulators import Replay

SCHEDULE, TOPOLOGY, CONFIG = "tcp_flow_schedule.csv", "topology.properties", "config_ns3.properties"
FILES = (SCHEDULE, TOPOLOGY, CONFIG)

#: Links of the star where the run's metadata has none.
LINK_MBIT, LINK_DELAY_NS = 10_000.0, 5_000

#: Simulated time after the last transfer's end, for flows that take longer than they did.
_AFTER_NS = 10_000_000_000

_TCP = 6


def files(_replay: Replay) -> tuple[str, ...]:
    """Names of the files."""
    return FILES


def write(replay: Replay, out: Path) -> list[str]:
    """Write the three files into a folder, or the schedule alone into a file .csv; return notes for the user."""
    return _write_schedule(replay, out) if out.suffix == ".csv" else _write_folder(replay, out)


def _write_folder(replay: Replay, folder: Path) -> list[str]:
    notes = _write_schedule(replay, folder / SCHEDULE)
    for name, text in ((TOPOLOGY, _topology(replay)), (CONFIG, _config(replay))):
        (folder / name).write_text(text, encoding="ascii")
    if not replay.link_mbit:
        notes.append(f"links of {LINK_MBIT:,.0f} Mbit/s: the run's metadata has no rate; see {TOPOLOGY}")
    return notes


def _write_schedule(replay: Replay, out: Path) -> list[str]:
    with whole_file(out) as half_written, half_written.open("w", encoding="ascii") as file:
        for row in replay.transfers.iter_rows(named=True):
            step = "none" if row["step"] is None else row["step"]
            about = f"{replay.name};flow={row['flow_id']};step={step}"
            fields = (row["transfer"], row["src"], row["dst"], row["size"], row["start_ns"], "", about)
            file.write(",".join(map(str, fields)) + "\n")
    notes = ["flows start at their times in the run: a schedule has no dependencies"]
    if others := int(replay.transfers.filter(pl.col("protocol") != _TCP)["size"].sum()):
        notes.append(f"{others:,} bytes that were sent by other protocols are TCP flows here")
    return notes


def _topology(replay: Replay) -> str:
    """A star: the nodes of the run, connected to one switch."""
    switch = len(replay.nodes)
    nodes = range(switch)
    mbit = replay.link_mbit or LINK_MBIT
    delay_ns = LINK_DELAY_NS if replay.delay_ms is None else round(replay.delay_ms * 1e6)
    lines = (
        f"# Run {replay.name}: a star around switch {switch}",
        f"num_nodes={switch + 1}",
        f"num_undirected_edges={switch}",
        f"switches=set({switch})",
        f"switches_which_are_tors=set({switch})",
        f"servers=set({','.join(map(str, nodes))})",
        f"undirected_edges=set({','.join(f'{node}-{switch}' for node in nodes)})",
        f"link_channel_delay_ns={delay_ns}",
        f"link_net_device_data_rate_megabit_per_s={mbit}",
        "link_net_device_queue=drop_tail(100p)",
        "link_net_device_receive_error_model=none",
        "link_interface_traffic_control_qdisc=disabled",
    )
    return "\n".join(lines) + "\n"


def _config(replay: Replay) -> str:
    lines = (
        f"simulation_end_time_ns={replay.end_ns + _AFTER_NS}",
        "simulation_seed=1",
        f'topology_ptop_filename="{TOPOLOGY}"',
        "enable_tcp_flow_scheduler=true",
        f'tcp_flow_schedule_filename="{SCHEDULE}"',
    )
    return "\n".join(lines) + "\n"
