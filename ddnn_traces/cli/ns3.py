"""Training on real ns-3, packet by packet, next to background flows."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from ddnn_traces.cli import lines
from ddnn_traces.cli.arguments import CommandByDefault, RowsOutput, key_values, params_option, prints_rows
from ddnn_traces.cli.lines import say, warn
from ddnn_traces.cli.simulate import JOB_OPTIONS, given_keys, job_options, sweep_options
from ddnn_traces.errors import UsageError


@click.group(
    cls=CommandByDefault,
    default="run",
    suffix=".toml",
    short_help="Simulate a ring packet by packet, beside other traffic",
)
def ns3() -> None:
    """Simulate a ring all-reduce packet by packet on ns-3, next to background flows (docs/ns3.md; needs the extra ns3).

    `ddnn-traces ns3` with options, or with a TOML file, is `ns3 run`.
    """


#: Options of a job: keys that people change between two runs. All keys: docs/ns3.md, and --set.
_OPTIONS: list[tuple[str, Any, str]] = [
    ("--run-id", str, "Name of the run. Default: ns3."),
    *JOB_OPTIONS,
    ("--preset", click.Choice(["thesis", "fast"]), "Values of the thesis (docs/ns3.md), or these with jumbo packets."),
    ("--compute-to-network", float, "Computation over transmission time (equation 5.1); sets the compute-ms."),
    ("--seconds", float, "Simulated time at which the run ends, s; --iterations is then what fits."),
    ("--training-priority", click.Choice(["same", "lower", "layers", "deadline"]), "Against the background: layers and "
     "deadline are lower but for the first layers, or for what would come too late. Default: same."),
    ("--flows-per-s", float, "Background flows that begin at each host, per second; needs --seconds. Default: 0."),
    ("--seed", int, "Of the background flows and of compute_jitter. Default: 0."),
]  # fmt: skip

compiler_option = click.option(
    "--compiler", type=click.Choice(["cppyy", "g++"]), help="Compiles the model. Default: g++ where it is installed."
)
debug_option = click.option("--debug-build", is_flag=True, help="Take an ns-3 that was built for debugging, too.")


training_option = click.option(
    "--training-only", is_flag=True, help="Write the flows of the training alone, not the background's and other jobs'."
)


@ns3.command(short_help="Simulate a job packet by packet, and print its measures")
@click.argument("specification", metavar="[JOB.toml]", required=False, type=click.Path(path_type=Path))
@job_options(_OPTIONS, "docs/ns3.md")
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
    settings: tuple[str, ...],
    output: RowsOutput,
    **options: Any,
) -> None:
    """Simulate a job on ns-3 and print its measures: iteration time, flow completion times, utilization, drops.

    With --out the run is written as a dataset with the tables of a capture; runs.source is ns3. docs/ns3.md has the
    keys of a file; options and --set win over it. Exit code 1: the run stopped at its time limit.
    """
    from ddnn_traces.traffic import ns3 as package
    from ddnn_traces.traffic.ns3.ns3_job import ALL_KEYS
    from ddnn_traces.traffic.ns3.ns3_results import TIME_LIMIT

    if training_only and out is None:
        raise UsageError("--training-only: is for --out DATASET, which has the flows")
    given = given_keys(options, settings, ALL_KEYS)
    with lines.share("the simulation") as told:
        rows = package.run(
            specification, given, out, pcap, pcap_hosts, compiler, debug_build, training_only, say, warn, told
        )
    output.emit(rows.select(column.name for column in rows if column.null_count() < len(rows)).to_arrow())
    sys.exit(1 if rows["ended"].eq(TIME_LIMIT).any() else 0)


@ns3.command(short_help="Simulate each combination packet by packet, in hours")
@click.argument("specification", metavar="[SWEEP.toml]", required=False, type=click.Path(path_type=Path))
@sweep_options
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

    The keys are those of `ns3 run` (docs/ns3.md). Without a file: the campaign of Gao 2020, section 5.4, with preset
    fast, 160 cells. An interrupted sweep goes on with the same command. docs/sharing.md describes what is written.
    """
    from ddnn_traces.report.charts import gao
    from ddnn_traces.traffic.ns3 import ns3_sweep as sweeps
    from ddnn_traces.traffic.ns3.ns3_results import TIME_LIMIT

    if training_only and not dataset:
        raise UsageError("--training-only: is for --dataset, which has the flows")
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
    from ddnn_traces.query import sweep_queries as sweeps

    if name is None:
        found = sweeps.queries()
        width = max(map(len, found))
        for each in sorted(found):
            click.echo(f"{each:<{width}}  {found[each].question}")
        return
    output.emit(sweeps.run(folder, name, **key_values(params)).to_arrow())
