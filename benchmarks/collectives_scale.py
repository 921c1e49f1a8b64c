"""How many collectives the inference finds, and how long it takes, by the number of hosts.

python benchmarks/collectives_scale.py 16,64,256 [PATTERN,... [STEPS]] [--out FOLDER]

Runs of the simulator, eight steps each unless said: hosts on links of 10 Gbit/s, 0.02 ms apart, which compute for 200
ms a step, with jitter of 2%. The truth is what was simulated. Messages are its transfers, with no packets behind them.
--out: also by_hosts.csv and the figure by_hosts.svg, of docs/collectives.md.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import polars as pl
import pyarrow as pa

from ddnn_traces.collectives import tables
from ddnn_traces.traffic import simulator
from ddnn_traces.traffic.simulator.job import SimulatedRun
from ddnn_traces.traffic.simulator.layers import LayerProfile
from ddnn_traces.traffic.simulator.patterned import PatternResult
from ddnn_traces.traffic.simulator.patterns import Pattern
from ddnn_traces.traffic.table_writer import TrafficTables

MS = 1e6
KINDS = {"allreduce": "all_reduce", "allgather": "all_gather", "alltoall": "all_to_all"}
#: Patterns by their names, with the bytes of their layers.
PATTERNS: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "ring": ({"name": "rings"}, (20_000_000,)),
    "rings, 4 channels": ({"name": "rings", "channels": 4}, (20_000_000,)),
    "double tree": ({"name": "double_tree"}, (20_000_000,)),
    "fsdp, 3 shards": ({"name": "fsdp"}, (5_000_000, 11_200_000, 7_400_000)),
    "fsdp, 8 equal shards": ({"name": "fsdp"}, (3_000_000,) * 8),
    "pipeline": ({"name": "pipeline"}, (20_000_000,)),
    "tensor and data": ({"name": "tensor_data"}, (20_000_000,)),
    "three dimensions": ({"name": "three_d"}, (20_000_000,)),
    "experts in groups of 8": ({"name": "moe", "group_size": 8}, (20_000_000,)),
}

Truth = Counter[tuple[str, frozenset[str]]]


def simulated(pattern: dict[str, Any], layers: tuple[int, ...], hosts: int, steps: int = 8) -> PatternResult:
    forward = np.full(len(layers), 200 * MS / 3 / len(layers))
    names = tuple(f"layer-{number}" for number in range(len(layers)))
    run = SimulatedRun(
        workers=hosts, steps=steps, compute_jitter=0.02, delay_ms=0.02, update_ms=5, pattern=Pattern.of(pattern),
        profile=LayerProfile("made", names, forward, 2 * forward, np.array(layers)), fusion_bytes=max(layers),
    )  # fmt: skip
    found = simulator.simulate(run)
    assert isinstance(found, PatternResult)
    return found


def truth(result: PatternResult, addresses: list[str]) -> Truth:
    """The collectives of a step, each channel for itself, by kind and hosts."""
    found = Truth()
    for span in result.graph.spans:
        if span.bytes < 0:
            continue
        if span.kind == "send":
            pairs = zip(span.hosts.tolist(), (int(name.removeprefix("to ")) for name in span.name), strict=True)
            found.update(("send", frozenset({addresses[src], addresses[dst]})) for src, dst in pairs)
            continue
        members: dict[str, set[str]] = {}
        for host, name in zip(span.hosts.tolist(), span.name, strict=True):
            members.setdefault(name, set()).add(addresses[host])
        found.update((KINDS.get(span.kind, span.kind), frozenset(hosts)) for hosts in members.values())
    return found


def messages(result: PatternResult) -> tuple[pa.Table, list[str]]:
    """As the inference reads them, and the address of each host."""
    traffic = simulator.traffic(result)
    made = pa.Table.from_batches(TrafficTables(traffic).batches("messages"))
    flow, addresses = made["flow_id"].to_numpy(), np.array(traffic.addresses)
    ends = addresses[np.array(traffic.ends)]
    last = made["first_ns"].to_numpy() + made["duration_ns"].to_numpy()
    columns = [
        made["flow_id"], ends[flow, 0], ends[flow, 1], made["first_ns"], last, made["stream_offset"], made["bytes"],
        np.ones(len(flow), bool), np.zeros(len(flow), bool),
    ]  # fmt: skip
    named = dict(zip(tables.MESSAGES.names, columns, strict=True))
    return pa.table(named, schema=tables.MESSAGES), addresses.tolist()


def measure(name: str, hosts: int, steps: int) -> dict[str, Any]:
    """A row: the collectives of a step, those found and printed of it, and CPU seconds of the inference."""
    result = simulated(*PATTERNS[name], hosts, steps)
    written, addresses = messages(result)
    wanted, begin = truth(result, addresses), time.process_time()
    jobs = tables.jobs_of("made", written).to_pylist()
    seconds = time.process_time() - begin
    found = Truth((one["kind"], frozenset(one["hosts"])) for job in jobs for one in job["collectives"] or [])
    return {
        "pattern": name, "hosts": hosts, "messages": written.num_rows, "collectives": wanted.total(),
        "found": (found & wanted).total(), "printed": found.total(), "cpu_s": round(seconds, 1),
    }  # fmt: skip


def chart(rows: pl.DataFrame) -> alt.VConcatChart:
    """Share found, and CPU time, over hosts: one line a pattern."""
    hosts = rows["hosts"].unique().sort().to_list()
    axis = alt.Axis(values=hosts, format=",d")
    base = (
        alt.Chart(rows.with_columns(share=pl.col("found") / pl.col("collectives")), width=520)
        .mark_line(point=True)
        .encode(
            alt.X("hosts:Q").scale(type="log", base=2).axis(axis).title("hosts (simulated)"),
            alt.Color("pattern:N").sort(list(PATTERNS)).title(None),
            alt.StrokeDash("pattern:N").sort(list(PATTERNS)).legend(None),
        )
    )
    found = base.encode(alt.Y("share:Q").axis(format="%").title("of a step's collectives, found"))
    spent = base.transform_filter("datum.cpu_s > 0").encode(
        alt.Y("cpu_s:Q").scale(type="log").axis(format="~g").title("CPU time of the inference, s")
    )
    return found.properties(height=180) & spent.properties(height=180)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("hosts")
    parser.add_argument("patterns", nargs="?", default=",".join(PATTERNS))
    parser.add_argument("steps", nargs="?", type=int, default=8)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    chosen = options.patterns.split(",")
    print("pattern, hosts: messages; collectives of a step, found, printed; CPU time of the inference, s")
    rows = []
    for hosts in map(int, options.hosts.split(",")):
        for name in (
            name for name in PATTERNS if name in chosen or name.split(",")[0] in chosen or name.split()[0] in chosen
        ):
            row = measure(name, hosts, options.steps)
            rows.append(row)
            print(
                "{pattern}, {hosts}: {messages}; {collectives}, {found}, {printed}; {cpu_s}".format(**row), flush=True
            )
    if options.out:
        table = pl.DataFrame(rows)
        options.out.mkdir(exist_ok=True)
        table.write_csv(options.out / "by_hosts.csv")
        chart(table).save(str(options.out / "by_hosts.svg"))


if __name__ == "__main__":
    main()
