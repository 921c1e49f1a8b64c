"""Training on real ns-3, packet by packet, next to background flows."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from ddnn_traces.cli import lines
from ddnn_traces.cli.lines import say, warn
from ddnn_traces.cli.shared import CommandByDefault, RowsOutput, key_values, params_option, prints_rows
from ddnn_traces.cli.simulate import JOB_OPTIONS, job_options


@click.group(cls=CommandByDefault, default="run", suffix=".toml")
def ns3() -> None:
    """Simulate a ring all-reduce packet by packet on ns-3, next to background flows (docs/ns3.md; needs the extra ns3).

    `ddnn-traces ns3` with options, or with a TOML file, is `ns3 run`.
    """


#: Options of the simulator that a ring on ns-3 has, too; where others are the defaults, their help.
_SHARED = {
    "--run-id": "Name of the run. Default: ns3.", "--delay-ms": "Propagation delay between two hosts, half of it on "
    "each of the two links, ms. Default: 0.02.", "--profile": "", "--layers": "", "--model-bytes": "",
    "--compute-ms": "", "--rescale/--no-rescale": "", "--layer-sizes": "", "--forward-times": "",
    "--backward-times": "", "--workers": "", "--topology": "ring, or star: a parameter server. Default: ring.",
    "--shape": "Of a star: worker, the first worker is the server, or server, a host of its own. Default: worker.",
    "--server-mbit": "", "--iterations": "Iterations. Default: 2; with --seconds what fits.",
    "--bandwidth-mbit": "", "--queue": "", "--barrier/--no-barrier": "", "--fusion-bytes": "", "--fuse-from": "",
    "--split-tensors/--no-split-tensors": "", "--partition-bytes": "", "--compression": "", "--compute-jitter": "",
    "--compute-distribution": "", "--update-ms": "", "--batch-size": "",
    "--seed": "Of the jitter and of the background flows. Default: 0.",
}  # fmt: skip
_OWN: list[tuple[str, Any, str]] = [
    ("--preset", click.Choice(["thesis", "fast"]), "Values of the thesis (docs/ns3.md), or these with jumbo packets."),
    ("--compute-to-network", float, "Computation over transmission time (equation 5.1); sets --compute-ms."),
    ("--seconds", float, "Simulated time at which the run ends, s."),
    ("--warm-up-s", float, "What begins in the first so many seconds is not measured. Default: 0."),
    ("--cool-down-s", float, "Nor what ends (flows: begins) in the last so many seconds. Default: 0."),
    ("--training-priority", click.Choice(["same", "lower", "layers", "deadline"]), "Against the background: layers and "
     "deadline are lower but for the first layers, or for what would come too late. Default: same."),
    ("--high-layers", int, "Layers that are not lower by --training-priority layers. Default: half of them."),
    ("--flows-per-s", float, "Background flows that begin at each host, per second; needs --seconds. Default: 0."),
    ("--flow-sizes", click.Path(), "File of their sizes: bytes and cumulative share, a line a point. Default: web."),
    ("--segment-bytes", int, "Payload of a full packet. Default: 8940."),
    ("--buffer-bytes", int, "Buffers of a socket, each way. Default: 1,048,576."),
    ("--queue-disc", click.Choice(["prio", "pfifo_fast"]), "Three queues, a limit each or one. Default: prio."),
    ("--queue-limit", str, "Packets (1000p) or bytes (1500000B) of a queue. Default: 1500000B."),
    ("--congestion-control", click.Choice(["newreno", "cubic", "linuxreno", "dctcp"]), "Of TCP. Default: newreno."),
    ("--ecn-threshold", int, "Bytes in a switch's queue above which dctcp marks. Default: 97,500 at 10 Gbit/s."),
    ("--initial-window", int, "Initial congestion window, segments. Default: 10."),
    ("--min-rto-ms", float, "Shortest retransmission timeout, ms. Default: twice the longest round trip."),
    ("--training-min-rto-ms", float, "The training's. Default: the same; where it has a lower priority 200."),
    ("--delayed-ack", int, "Packets that an acknowledgement is for. Default: 2."),
    ("--leaves", int, "Top-of-rack switches, hosts in blocks on them, joined by --spines. Default: 1."),
    ("--spines", int, "Switches that join the leaves; flows are hashed to them (ECMP). Default: 2."),
    ("--oversubscription", float, "Rate of a leaf's hosts over that of its links to the spines. Default: 1."),
    ("--straggler", float, "Computation of the first worker over that of the others. Default: 1."),
    ("--other-jobs", int, "Further jobs like this one on the same hosts. Default: 0."),
    ("--other-jobs-after-ms", float, "Each begins so long after the one before, ms. Default: 0."),
    ("--skip-tolerance", float, "Skip iterations that would repeat the one before within this share; as 0.001. "
     "Default: 0, none."),
    ("--time-limit-s", float, "Wall clock; a run that has not ended by then stops, marked. Default: 3600."),
]  # fmt: skip
_OPTIONS = _OWN + [(name, kind, _SHARED[name] or text) for name, kind, text in JOB_OPTIONS if name in _SHARED]

compiler_option = click.option(
    "--compiler", type=click.Choice(["cppyy", "g++"]), help="Compiles the model. Default: g++ where it is installed."
)
debug_option = click.option("--debug-build", is_flag=True, help="Take an ns-3 that was built for debugging, too.")


training_option = click.option(
    "--training-only", is_flag=True, help="Write the flows of the training alone, not the background's and other jobs'."
)


@ns3.command()
@click.argument("specification", metavar="[JOB.toml]", required=False, type=click.Path(path_type=Path))
@job_options(_OPTIONS)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Dataset to write the run into: new, or next to others; a simulated one of its name is replaced.",
)
@click.option("--pcap", type=click.Path(path_type=Path), help="Folder for a run folder with a capture of each host.")
@click.option("--pcap-host", "pcap_hosts", multiple=True, metavar="LABEL", help="Capture this host only, as worker-1.")
@training_option
@compiler_option
@debug_option
@prints_rows(out=False)
def run(
    specification: Path | None,
    out: Path | None,
    pcap: Path | None,
    pcap_hosts: tuple[str, ...],
    compiler: str | None,
    debug_build: bool,
    training_only: bool,
    output: RowsOutput,
    **options: Any,
) -> None:
    """Simulate a job on ns-3 and print its measures: iteration time, flow completion times, utilization, drops.

    With --out the run is written as a dataset with the tables of a capture; runs.source is ns3. A TOML file has the
    options' names with underscores as keys; options win over it. Exit code 1: the run stopped at its time limit.
    """
    from ddnn_traces.traffic import ns3 as package
    from ddnn_traces.traffic.ns3.results import TIME_LIMIT

    given = {name: value for name, value in options.items() if value is not None}
    rows = package.run(specification, given, out, pcap, pcap_hosts, compiler, debug_build, training_only, say, warn)
    output.emit(rows.select(column.name for column in rows if column.null_count() < len(rows)).to_arrow())
    sys.exit(1 if rows["ended"].eq(TIME_LIMIT).any() else 0)


@ns3.command()
@click.argument("specification", metavar="[SWEEP.toml]", required=False, type=click.Path(path_type=Path))
@click.option(
    "--out", required=True, type=click.Path(path_type=Path, file_okay=False), help="Folder of the cells and charts."
)
@click.option("--jobs", type=click.IntRange(min=1), help="Processes. Default: one a CPU.")
@click.option("--dataset/--no-dataset", default=False, help="Write each cell as a run, too, into OUT/dataset.")
@training_option
@compiler_option
@debug_option
@prints_rows(out=False)
def sweep(
    specification: Path | None,
    out: Path,
    jobs: int | None,
    dataset: bool,
    compiler: str | None,
    debug_build: bool,
    training_only: bool,
    output: RowsOutput,
) -> None:
    """Simulate every combination of the values that a TOML file has lists of: OUT/cells.parquet, tables and charts.

    The keys are those of `ns3 run`. Without a file: the campaign of Gao 2020, section 5.4, with preset fast, 96 cells.
    An interrupted sweep goes on with the same command. docs/sharing.md describes what is written.
    """
    from ddnn_traces.report.charts import gao
    from ddnn_traces.traffic.ns3 import sweep as sweeps
    from ddnn_traces.traffic.ns3.results import TIME_LIMIT

    cells = sweeps.run(specification, out, jobs, dataset, lines.messages("cells"), compiler, debug_build, training_only)
    for chart in gao.write(out, sweeps.axes(specification)):
        say(f"wrote {chart}")
    output.emit(cells.to_arrow())
    stopped = "ended" in cells.columns and cells["ended"].eq(TIME_LIMIT).any()
    sys.exit(1 if stopped or cells["error"].is_not_null().any() else 0)


@ns3.command()
@click.argument("folder", metavar="OUT", type=click.Path(path_type=Path, file_okay=False, exists=True))
@click.argument("name", required=False)
@params_option
@prints_rows()
def query(folder: Path, name: str | None, params: tuple[str, ...], output: RowsOutput) -> None:
    """Run a named query over the folder of a sweep (queries/sweep/). Without NAME: list the queries."""
    from ddnn_traces.query import sweep as sweeps

    if name is None:
        found = sweeps.queries()
        width = max(map(len, found))
        for each in sorted(found):
            click.echo(f"{each:<{width}}  {found[each].question}")
        return
    output.emit(sweeps.run(folder, name, **key_values(params)).to_arrow())
