"""Make the pictures of README.md, docs/tutorial.md, docs/cookbook.md and docs/simulator.md: the report in Chromium, and
charts of runs, sweeps and profiles.

python docs/pictures.py    # make docs-pictures
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import ddnn_traces
from ddnn_traces.messages import Messages
from ddnn_traces.report import plot
from ddnn_traces.report.charts import gao
from ddnn_traces.traffic.simulator import layers, sweep

HERE = Path(__file__).resolve().parent
SAMPLE = HERE.parent / "data" / "sample"
RUN = "torch-mlp1-sgd-32-gloo-normal-ring-n4"
TRACES = HERE.parent / "tests" / "traces" / "runs"
_RING = "torch-mlp1-sgd-32-gloo-0ms-ring"
#: Charts of docs/cookbook.md, each with the runs that its answer is of.
COOKBOOK = {
    "pair_volume": "tf-mlp1-sgd-32-grpc-0ms-ps", "run_throughput": "torch-mlp1-sgd-32-gloo-0ms-ring-both",
    "flow_counts": _RING, "iteration_duration_cdf": "mpi-mlp12-sgd-32-openmpi-0ms-ring-tso",
    "position_volume": "torchp2p*", "accuracy_volume": "tf-mlp1-sgd-32-grpc-0ms-ring", "straggler_summary": _RING,
}  # fmt: skip
#: Charts of docs/simulator.md, each of the sweep of docs/simulations/ that it is named after.
SWEEPS = {"chang_1": "iteration_time", "chang_2": "remaining_time"}
PROFILE = "resnet50"
#: Of a browser that asks no server for anything.
QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip


def photograph(page: Path, out: Path, folder: Path, width: int = 1400, height: int = 900) -> None:
    """Write the first screen of an HTML file as PNG. folder: for the browser's own files."""
    subprocess.run(
        ["chromium", *QUIET, "--hide-scrollbars", "--force-device-scale-factor=1", "--virtual-time-budget=20000",
         f"--window-size={width},{height}", f"--user-data-dir={folder / 'browser'}", f"--screenshot={out}",
         page.as_uri()],
        check=True, capture_output=True, timeout=240,
    )  # fmt: skip


def simulated(folder: Path) -> None:
    """Write the charts of docs/simulator.md. folder: for what the sweeps write."""
    for name, chart in SWEEPS.items():
        sweep.run(HERE / "simulations" / f"{name}.toml", folder / name, None, dataset=False, messages=Messages())
        gao.write_sweep(folder / name)
        shutil.copyfile(folder / name / f"{chart}.svg", HERE / "simulator" / f"{name}.svg")
    layers.write(layers.read(PROFILE), folder / "profile.parquet")
    shutil.copyfile(gao.write_profile(folder), HERE / "simulator" / f"profile_{PROFILE}.svg")


def main() -> None:
    """Ingest the sample and the tests' traces, and write all pictures."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        simulated(folder)
        with ddnn_traces.ingest(SAMPLE, folder / "dataset") as dataset:
            report = ddnn_traces.write_report(dataset, folder / "report.html")
        photograph(report, HERE / "report.png", folder)
        with ddnn_traces.open(folder / "dataset", runs=RUN) as dataset:
            (figure,) = plot.figures(dataset, "iteration_duration_cdf")
        (HERE / "steps.svg").write_bytes(figure.drawn()["svg"])
        ddnn_traces.ingest(TRACES, folder / "traces").close()
        for query, runs in COOKBOOK.items():
            with ddnn_traces.open(folder / "traces", runs=runs) as dataset:
                figure = plot.figures(dataset, query)[0]
            (HERE / "cookbook" / f"{query}.svg").write_bytes(figure.drawn()["svg"])


if __name__ == "__main__":
    main()
