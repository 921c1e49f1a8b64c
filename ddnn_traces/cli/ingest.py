"""Captures into a dataset."""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from ddnn_traces.pcap.engines import DEFAULT_ENGINE, ENGINES
from ddnn_traces.store import hashes
from ddnn_traces.store.object_store import shown
from ddnn_traces.store.places import is_url

if TYPE_CHECKING:
    from ddnn_traces.ingestors.options import IngestOptions
    from ddnn_traces.messages import Messages


def _clock_offset(_context: click.Context, _option: click.Parameter, value: str | None) -> str | float:
    """auto, none, a number of seconds, or offer (the default)."""
    if value is None:
        return "offer"
    if value in ("auto", "none"):
        return value
    try:
        return float(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is not auto, none or a number of seconds") from None


@click.command(short_help="Read captures and training logs into a dataset")
@click.argument("sources", nargs=-1, required=True)
@click.option("--out", help="Dataset: a folder, or a URL on a store; new, or to add runs to. Required.")
@click.option(
    "--template",
    is_flag=True,
    help="Ingest nothing: write a runs.csv next to the runs, with a row for each, whose cells you fill in. To one that "
    "is there it adds the runs that it lacks.",
)
@click.option(
    "--engine",
    type=click.Choice(list(ENGINES)),
    default=DEFAULT_ENGINE,
    help=" ".join(f"{name}: {engine.about}." for name, engine in ENGINES.items()),
)
@click.option("--window-ms", default=1.0, help="Base window of flow_windows, ms.")
@click.option(
    "--silence-us",
    default=200.0,
    help="A message of a TCP flow ends where its sender is silent for longer, microseconds (table messages).",
)
@click.option(
    "--hash",
    type=click.Choice(hashes.CHOICES),
    default=hashes.DEFAULT,
    help="What identifies an input file, in captures and provenance: BLAKE3 (b3sum prints it), SHA-256 "
    "(sha256sum; four times as much CPU), or nothing.",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="Threads, over files and inside a large one. Default: the CPUs this process may use.",
)
@click.option(
    "--filter",
    metavar="EXPR",
    help="Only flows that match a capture-filter expression, such as 'tcp port 5000 and not host 10.0.0.9': "
    "host, net, port, portrange, proto and protocols with src, dst, and, or, not. The packets of the "
    "others are in the ledger as filtered.",
)
@click.option(
    "--tunnels",
    type=click.Choice(["inner", "outer"]),
    default="inner",
    help="inner: the flows inside IPIP, GRE, VXLAN and Geneve. outer: the tunnels themselves.",
)
@click.option(
    "--packets", is_flag=True, help="Also write the table packets, one row a packet: as large as the capture."
)
@click.option(
    "--clock-offset",
    metavar="auto|none|SECONDS",
    callback=_clock_offset,
    help="Seconds to add to the times of the training logs; auto: the offset that aligns their steps with the traffic; "
    "none: 0. Without this option, ingest warns when they are not aligned.",
)
@click.option(
    "--run-id",
    metavar="NAME",
    help="Join all captures of the sources into one run of this name. Of several folders each is a host's: "
    "nodeA/eth0.pcap was captured at nodeA.",
)
@click.option(
    "--layout",
    metavar="PATTERN",
    help="Run and host in the paths of captures: '{run}/{host}/*.pcap', '{host}/*.pcap*', '{run}/{host}-*.pcap'. It "
    "describes the end of a path; run and host are below the source.",
)
@click.option(
    "--events",
    multiple=True,
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="What a profiler recorded of the only run, beside what is found in its folder: a flight recorder's JSON, a "
    "Kineto trace. May be given several times.",
)
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Read the captures on a Dask cluster: tcp://HOST:PORT of its scheduler, or local:N for N processes of this "
    "machine. The dataset is the same, byte for byte.",
)
@click.option(
    "--plan",
    is_flag=True,
    help="Ingest nothing: print the tasks of each capture, and, from reading the first 64 MB of the largest, the "
    "expected time, core-hours and requests to a store.",
)
@click.option("--force", is_flag=True, help="Read runs again whose inputs and parameters have not changed.")
@click.option(
    "--strict", is_flag=True, help="Exit with 1 after any warning. Without it: only where data were not read in full."
)
@click.option("--no-wait", is_flag=True, help="Fail when another ingest is writing the dataset, instead of waiting.")
def ingest(
    sources: tuple[str, ...],
    out: str | None,
    template: bool,
    plan: bool,
    no_wait: bool,
    strict: bool,
    **options: Any,
) -> None:
    """Read captures and training logs into a dataset.

    SOURCES are files, globs, folders, folders of run folders, or - for standard input. A folder that holds captures is
    one run. A run whose files and parameters have not changed is not read again; a changed run is replaced; other runs
    stay. A finished run is in the dataset within seconds, also when the ingest is killed later: the next ingest
    continues with the other runs.

    Exit code 0: every record of every file was read, whatever the warnings; 1: files or runs were not read in full.
    """
    if template and plan:
        raise click.UsageError("--template writes a runs.csv, --plan nothing; leave out one of them")
    if template:
        if out is not None:
            raise click.UsageError("--template ingests nothing; leave out --out, or --template")
        _write_template(list(sources), options["layout"], options["run_id"])
        return
    if out is None:
        raise click.MissingParameter(param_hint="'--out'", param_type="option")
    if not out:
        raise click.UsageError("--out '' names no dataset; write --out . for the current folder")
    if options["scheduler"] is not None and options["jobs"] is not None:
        raise click.UsageError("--jobs counts threads of this machine; leave it out with --scheduler")
    _prepare_for_ingest(options["scheduler"] is not None or any(map(is_url, (*sources, out))))
    from ddnn_traces.cli import first_ingest, lines

    messages = lines.messages()
    if not plan and options["engine"] == DEFAULT_ENGINE and options["scheduler"] is None:
        first_ingest.prepare(sources, messages)
    from ddnn_traces.ingestors import pipeline  # which imports numba
    from ddnn_traces.ingestors.options import IngestOptions

    if plan:
        _print_plan(list(sources), out, IngestOptions(**options), messages)
        return
    pipeline.ingest(list(sources), out, IngestOptions(wait=not no_wait, **options), messages)
    if messages.partial or (strict and messages.warnings):
        raise click.exceptions.Exit(1)


def _print_plan(sources: list[str], out: str, options: IngestOptions, messages: Messages) -> None:
    import pyarrow as pa

    from ddnn_traces.cli import lines, terminal
    from ddnn_traces.ingestors.plan import plan
    from ddnn_traces.text import counted

    found = plan(sources, out, options, messages)
    names = ("run_id", "capture", "bytes", "tasks")
    terminal.print_table(pa.table({name: [getattr(file, name) for file in found.files] for name in names}))
    measured = found.calibration
    lines.say(
        f"measured: the first {measured.bytes / 1e6:,.1f} MB of {shown(str(measured.path))}: {measured.fetch_s:.2f} s "
        f"for its bytes, {measured.read_s:.2f} s for packet loop and hash"
    )
    lines.say(
        f"{counted(found.tasks, 'task')}, {found.bytes / 1e9:,.2f} GB, {counted(found.workers, found.reader)}: about "
        f"{found.expected_s:,.1f} s after the start of processes, {found.core_hours:,.3f} core-hours, "
        f"{counted(found.requests, 'request')} to the store; limited by {found.limit}"
    )


def _write_template(sources: list[str], layout: str | None, run_id: str | None) -> None:
    for source in sources:
        if is_url(source):
            raise click.UsageError(f"--template writes next to runs on this machine, and {shown(source)} is a URL")
    from ddnn_traces.cli import lines
    from ddnn_traces.ingestors.template import write_template
    from ddnn_traces.text import counted, printable

    for path, added in write_template(sources, layout, run_id):
        done = f"{counted(len(added), 'run')} added; fill in what you know" if added else "has a row for each run"
        lines.say(printable(f"{path}: {done}"))


def _prepare_for_ingest(elsewhere: bool) -> None:
    """Settings of a process that does nothing else, which save a third of its start and an eighth of its memory.

    elsewhere: whether captures or dataset are on a store, or a cluster reads them.
    """
    sys.meta_path.insert(0, _HiddenLibraries(elsewhere))
    gc.set_threshold(1_000_000)  # numba's modules are many objects that are never freed
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # nothing here multiplies matrices
    import pyarrow as pa

    pa.set_memory_pool(pa.system_memory_pool())  # Arrow's own pool never returns memory


class _HiddenLibraries:
    """Import hook under which libraries that numba and pyarrow load only where they are installed are not.

    Ingest needs none of them, and importing them takes longer than reading a small capture.
    """

    _NAMES = (
        "scipy",
        "pandas",
        "cffi",
        "yaml",
        "dateutil",
        "pyarrow._s3fs",
        "pyarrow._gcsfs",
        "pyarrow._azurefs",
        "pyarrow._hdfs",
    )

    #: What Dask, and the libraries of stores, need.
    _NEEDED_ELSEWHERE = ("cffi", "yaml", "dateutil")

    def __init__(self, elsewhere: bool) -> None:
        self._hidden = {*self._NAMES} - {*(self._NEEDED_ELSEWHERE if elsewhere else ())}

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "duckdb":  # the last library: what is loaded by now is not searched for garbage at the end, which
            gc.freeze()  # takes a sixth of a small ingest; DuckDB itself is, as it reports objects that are not freed
        if name in self._hidden:
            raise ModuleNotFoundError(f"{name} is hidden from ingest", name=name)
