"""The Python interface: what a user imports, sees in a notebook, and gets without a dataset on disk."""

from __future__ import annotations

import inspect
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from small_runs import A, B, ring, write_captures
from tools import CTRL_C, interrupted_in_its_wait

import ddnn_traces
from ddnn_traces.errors import DdnnTracesError
from ddnn_traces.ingestors.options import IngestOptions
from ddnn_traces.query.dataset import Dataset


def test_the_flows_of_one_file_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temp"))
    (tmp_path / "temp").mkdir()
    folder = write_captures(tmp_path / "run", {"a.pcap": ring(A, B)})
    flows = ddnn_traces.read_pcap(folder / "a.pcap")
    assert {"src_ip", "dst_ip", "packets", "wire_bytes"} <= set(flows.columns) and "run_id" not in flows.columns
    assert flows["packets"].sum() == sum(1 for _ in ring(A, B))
    assert list((tmp_path / "temp").iterdir()) == [], "nothing is left behind"
    with pytest.warns(UserWarning, match="keeps none"):
        assert ddnn_traces.read_pcap(folder / "a.pcap", filter="src host 10.0.0.200").is_empty()
    whole = (folder / "a.pcap").read_bytes()
    (tmp_path / "cut.pcap").write_bytes(whole[:-10])
    with pytest.warns(UserWarning, match=r"cut\.pcap: truncated"):
        assert ddnn_traces.read_pcap(tmp_path / "cut.pcap")["packets"].sum() == flows["packets"].sum() - 1


def test_a_file_that_is_no_capture_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DdnnTracesError, match=r"nothing\.pcap"):
        ddnn_traces.read_pcap(tmp_path / "nothing.pcap")
    (tmp_path / "text.pcap").write_text("no capture at all, but text that is long enough")
    with pytest.raises(DdnnTracesError, match=r"text\.pcap: corrupt: not a capture"):
        ddnn_traces.read_pcap(tmp_path / "text.pcap")


def test_views_and_macros_work_through_the_connection(sample_dataset: Dataset) -> None:
    run = sample_dataset.run_ids[0]
    connection = sample_dataset.connection
    flows = connection.execute("SELECT count(*) FROM flows WHERE run_id = ?", [run]).fetchone()
    assert flows and flows[0] > 0
    windows = connection.execute("SELECT count(*) FROM pair_throughput(window_ms := 10)").fetchone()
    assert windows and windows[0] > 0


def test_queries_can_be_looked_through(sample_dataset: Dataset) -> None:
    queries = sample_dataset.queries
    assert queries["traffic_matrix"].question.endswith("?")
    assert len(queries) == len(repr(queries).splitlines())
    assert queries["traffic_matrix"].question in repr(queries)


def test_a_dataset_shows_its_place_and_its_runs(sample_dataset: Dataset) -> None:
    with ddnn_traces.open(sample_dataset.path, runs=sample_dataset.run_ids[:4]) as opened:
        shown = repr(opened)
    assert str(sample_dataset.path) in shown and "4 runs" in shown and shown.endswith(", ...>")


def test_a_regression_has_a_summary(sample_dataset: Dataset) -> None:
    fit = ddnn_traces.regress(sample_dataset)
    assert fit.formula in fit.summary() and "Coefficients" in fit.summary()
    assert len(fit.summary(verbose=True)) > len(fit.summary())


@pytest.mark.parametrize("name", ["ingest", "regress", "open", "predict", "write_report", "write_packets", "read_pcap"])
def test_options_have_names_and_types(name: str) -> None:
    signature = inspect.signature(getattr(ddnn_traces, name))
    assert all(param.kind is not param.VAR_KEYWORD for param in signature.parameters.values())
    assert all(param.annotation is not param.empty for param in signature.parameters.values())


def test_the_options_of_ingest_are_those_of_its_parts() -> None:
    given = inspect.signature(ddnn_traces.ingest).parameters
    options = inspect.signature(IngestOptions).parameters
    assert {*given} - {"sources", "out"} == {*options}
    assert {name: given[name].default for name in options} == {name: param.default for name, param in options.items()}


def test_type_checkers_find_the_types() -> None:
    assert (Path(ddnn_traces.__file__).parent / "py.typed").is_file()


WAITS = """
import queue, subprocess, threading, ORDER

thread = threading.Thread(target=threading.Event().wait, daemon=True)
thread.start()
process = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
try:
    print("waits", flush=True)
    WHAT
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("order", ["ddnn_traces, polars", "polars, ddnn_traces"])
@pytest.mark.parametrize(
    "what", ["threading.Event().wait()", "queue.SimpleQueue().get()", "thread.join()", "process.wait()"]
)
def test_an_interrupt_ends_any_wait(order: str, what: str) -> None:
    """polars' handler of SIGINT, which it sets when it is imported, would let the wait go on."""
    code = CTRL_C + WAITS.replace("ORDER", order).replace("WHAT", what)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert interrupted_in_its_wait(process) == ("interrupted\n", None)
