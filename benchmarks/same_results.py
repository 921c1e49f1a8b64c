"""Show that a change of the code changes no result: record the results of two versions on the sample, then compare.

    python benchmarks/same_results.py record before    # at the old commit
    python benchmarks/same_results.py record after     # at the new commit
    python benchmarks/same_results.py compare before after

A record holds every table of the ingested sample, of a release of it (fixed key and date, with captures) and of
generated runs, of a simulated one and, where ns-3 is installed, of one on ns-3; the result of every named query, with
its column names and types; every chart as Vega-Lite JSON; the JSON of `regress`; the report's page; the files of the
exports; the cut-down captures; the options and exit codes of the command line. Provenance and texts may differ.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
import ddnn_traces  # noqa: E402  of this checkout
from ddnn_traces.errors import NoDataError  # noqa: E402
from ddnn_traces.export.targets import TARGETS  # noqa: E402
from ddnn_traces.report.plot import DRAWN, SHOWN_BY, figures  # noqa: E402

SAMPLE = ROOT / "tests" / "traces" / "runs"
COMMAND = [
    sys.executable,
    "-c",
    f"import sys; sys.path.insert(0, {str(ROOT)!r}); from ddnn_traces.cli import main; main()",
]
KEY = "4f" * 16 + "".join(f"{byte:02x}" for byte in range(32))
#: A call that is wrong in one way each, and one that is right: their exit codes.
CALLS = (
    ["--version"],
    ["runs", "{dataset}"],
    ["runs", "nowhere"],
    ["query", "{dataset}", "no_such_query"],
    ["query", "{dataset}", "traffic_matrix", "--param", "no=1"],
    ["sql", "{dataset}", "SELECT no_such_column FROM flows"],
    ["sql", "{dataset}", "DROP VIEW flows"],
    ["check", "{dataset}"],
    ["ingest", "nowhere", "--out", "{scratch}/x"],
    ["ingest", str(SAMPLE), "--out", str(SAMPLE)],
    ["regress", "{dataset}"],
    ["regress", "{dataset}", "--formula", "wire_bytes ~ no_such_term"],
    ["predict", "{dataset}", "--model-bytes", "1e15"],
    ["publish", "{dataset}", "--out", "{scratch}/without_title"],
    ["push", "nowhere", "--to", "{scratch}/x"],
    ["verify", "nowhere"],
    ["export", "{dataset}", "--to", "goal", "--run", "no_such_run", "--out", "{scratch}/x"],
)
#: Values of parameters without which a query has no rows.
GIVEN = {
    "compare": {"a_runs": "torch-*", "b_runs": "mpi-*"},
    "collective_comparison": {
        "a_run": "torch-mlp1-sgd-32-gloo-0ms-ring",
        "b_run": "mpi-mlp1-sgd-32-openmpi-0ms-ring",
    },
}
#: Of `regress`, on the generated runs, whose settings differ.
REGRESSIONS = (
    [],
    ["--verbose"],
    ["--preset", "paper"],
    ["--preset", "step-time"],
    ["--rows", "steps"],
    ["--errors", "hc3"],
    ["--response", "payload", "--batch", "number"],
)
#: A job with each part of the simulator that changes tables, and a small one for ns-3.
SIMULATED = {
    "simulate": """
workers = 4
topology = "halving_doubling"
iterations = 3
layers = 20
fusion_bytes = 20000000
bandwidth_mbit = 1000
queue = "priority"
partition_bytes = 500000
compute_jitter = 0.1
seed = 7
""",
    "ns3": """
workers = 3
iterations = 2
layers = 10
model_bytes = 2000000
compute_ms = 30
bandwidth_mbit = 1000
""",
}
#: Columns that say which software wrote a row, and how long it took.
SOFTWARE = ("version",)


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the command line; end the program where it cannot."""
    done = call(*arguments)
    if done.returncode:
        sys.exit(f"{arguments}: exit {done.returncode}: {done.stderr[-2000:]}")
    return done


def call(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the command line, whatever it answers."""
    return subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True)


def record(out: Path) -> None:
    """Write the results of this version of the code on the sample into the folder `out`."""
    shutil.rmtree(out, ignore_errors=True)
    scratch = out / "scratch"
    scratch.mkdir(parents=True)
    dataset, release, generated = scratch / "dataset", scratch / "release", scratch / "generated"
    key = scratch / "key"
    key.write_text(KEY)
    run("ingest", SAMPLE, "--out", dataset)
    about = ["--title", "The sample", "--licence", "CC-BY-4.0", "--creator", "Ada Lovelace", "--date", "2026-01-31"]
    run("publish", dataset, "--out", release, *about, "--key", key, "--captures", SAMPLE)
    run("generate", "--out", generated, "--seed", "1")
    found: dict[str, object] = {}
    for name, folder in (("dataset", dataset), ("release", release), ("generated", generated)):
        found |= {f"{name}: table {table}": digest for table, digest in tables(folder)}
    found |= {f"dataset: query {name}": digest for name, digest in queries(dataset)}
    found |= {f"release: file {name}": digest for name, digest in files(release / "pcap")}
    for name, folder in (("dataset", dataset), ("generated", generated)):
        found |= {f"{name}: chart {chart}": digest for chart, digest in charts(folder)}
        found |= {f"{name}: report": report(folder, scratch)}
        found |= {f"{name}: regress {' '.join(line)}": printed(["regress", folder, *line]) for line in REGRESSIONS}
    found |= {name: digest for kind in SIMULATED for name, digest in simulated(kind, scratch)}
    found |= {f"export {name}": digest for name, digest in exports(dataset, scratch)}
    found |= {f"command {name}": options for name, options in commands()}
    found |= {f"exit {' '.join(line)}": code for line, code in exit_codes(dataset, scratch)}
    (out / "results.json").write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    shutil.rmtree(scratch)
    print(f"{out}: {len(found)} results recorded")


def tables(dataset: Path) -> Iterator[tuple[str, str]]:
    """Each table with a hash of its schema and rows, in the order in which they are stored."""
    for folder in sorted(path for path in dataset.iterdir() if any(path.glob("run_id=*"))):
        parts = [pq.ParquetFile(file).read() for file in sorted(folder.glob("*/*.parquet"))]
        yield folder.name, rows_hash(pa.concat_tables(parts))


def queries(dataset: Path) -> Iterator[tuple[str, str]]:
    """Each named query with a hash of its columns and rows. One thread: sums of doubles depend on the order of rows."""
    with ddnn_traces.open(dataset) as opened:
        opened.connection.execute("SET threads = 1")
        for path in sorted((ROOT / "queries").glob("*.sql")):
            yield path.stem, rows_hash(opened.query_arrow(path.stem, GIVEN.get(path.stem, {})))


def charts(dataset: Path) -> Iterator[tuple[str, str]]:
    """Each query with a figure, and a hash of its figures as Vega-Lite JSON, or what is missing for them."""
    with ddnn_traces.open(dataset) as opened:
        opened.connection.execute("SET threads = 1")
        for name in sorted({*DRAWN, *SHOWN_BY}):
            try:
                specs = [figure.file_spec for figure in figures(opened, name, GIVEN.get(name))]
            except NoDataError as error:
                yield name, str(error)
            else:
                yield name, text_hash(json.dumps(specs, sort_keys=True, default=str))


def report(dataset: Path, scratch: Path) -> str:
    """A hash of the report's page without the SQL at its end, which is text."""
    page = scratch / "report.html"
    run("report", dataset, "--out", page)
    return text_hash(re.sub(r'<details class="query">.*?</details>', "", page.read_text(), flags=re.S))


def printed(line: list[object]) -> str:
    """What a command prints as JSON, numbers to ten digits, or its exit code where it refuses.

    Another order of the same sums changes the last digits.
    """
    done = call(*line, "--format", "json")
    if done.returncode:
        return f"exit {done.returncode}"
    return text_hash(json.dumps(json.loads(done.stdout, parse_float=lambda text: f"{float(text):.10g}")))


def simulated(kind: str, scratch: Path) -> Iterator[tuple[str, str]]:
    """The tables of the job SIMULATED of the command `simulate run` or `ns3 run`; nothing without ns-3."""
    if kind == "ns3" and importlib.util.find_spec("ns") is None:
        return
    job, out = scratch / f"{kind}.toml", scratch / kind
    job.write_text(SIMULATED[kind])
    run(kind, "run", job, "--out", out)
    yield from ((f"{kind}: table {table}", digest) for table, digest in tables(out))


def exports(dataset: Path, scratch: Path) -> Iterator[tuple[str, str]]:
    """Each export's files, of one run."""
    for target in TARGETS:
        if target == "duckdb":  # holds paths
            continue
        folder = scratch / target
        run("export", dataset, "--to", target, "--run", "torch-mlp1-sgd-32-gloo-0ms-ring", "--out", folder)
        yield from ((f"{target} {name}", digest) for name, digest in files(folder))


def files(folder: Path) -> Iterator[tuple[str, str]]:
    """Files of a folder, or a file, with the hash of their bytes."""
    for path in sorted(folder.rglob("*")) if folder.is_dir() else [folder]:
        if path.is_file():
            yield str(path.relative_to(folder.parent)), hashlib.sha256(path.read_bytes()).hexdigest()


def commands() -> Iterator[tuple[str, list[str]]]:
    """Each command with the names of its options and subcommands."""
    waiting: list[list[str]] = [[]]
    while waiting:
        names = waiting.pop()
        text = run(*names, "--help").stdout
        below = text.partition("\nCommands:\n")[2]
        subcommands = re.findall(r"^  (\w[\w-]*)  ", below, flags=re.M)
        waiting += [[*names, name] for name in subcommands]
        options = re.findall(r"^  ((?:-\w, )?--[\w-]+(?: \S+)?)", text, flags=re.M)
        yield " ".join(names) or "ddnn-traces", sorted(options + subcommands)


def exit_codes(dataset: Path, scratch: Path) -> Iterator[tuple[list[str], int]]:
    """Each of CALLS with its exit code."""
    for line in CALLS:
        done = call(*(word.format(dataset=dataset, scratch=scratch) for word in line))
        assert "Traceback" not in done.stderr, done.stderr
        yield [word.replace(str(ROOT), "") for word in line], done.returncode


def text_hash(text: str) -> str:
    """Length and a hash of a text."""
    return f"{len(text)} characters {hashlib.sha256(text.encode()).hexdigest()[:32]}"


def rows_hash(rows: pa.Table) -> str:
    """Column names, types, number of rows and a hash of the values, without the columns SOFTWARE."""
    kept = rows.select([name for name in rows.column_names if name not in SOFTWARE])
    digest = hashlib.sha256()
    for name in kept.column_names:
        digest.update(json.dumps([name, kept[name].to_pylist()], default=str).encode())
    types = ", ".join(f"{field.name} {field.type}" for field in kept.schema)
    return f"{kept.num_rows} rows ({types}) {digest.hexdigest()[:32]}"


def compare(before: Path, after: Path) -> int:
    """Print the differences; return 1 where there are any."""
    old, new = (json.loads((folder / "results.json").read_text()) for folder in (before, after))
    differing = [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]
    for name in differing:
        print(f"{name}\n  before: {old.get(name)}\n  after:  {new.get(name)}")
    print(f"{len(old)} results before, {len(new)} after, {len(differing)} differ")
    return int(bool(differing))


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["record", "compare"])
    parser.add_argument("folders", nargs="+", type=Path, help="record: one folder; compare: before and after")
    arguments = parser.parse_args()
    if len(arguments.folders) != (1 if arguments.action == "record" else 2):
        parser.error("record takes one folder, compare two")
    if arguments.action == "record":
        record(*arguments.folders)
    else:
        sys.exit(compare(*arguments.folders))


if __name__ == "__main__":
    main()
