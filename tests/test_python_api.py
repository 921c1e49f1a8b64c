"""The Python interface: what a user imports, sees in a notebook, and gets without a dataset on disk."""

from __future__ import annotations

import html
import inspect
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import polars as pl
import pytest
from small_runs import A, B, ring, write_captures
from tools import CTRL_C, interrupted_in_its_wait, mostly_long

import ddnn_traces
from ddnn_traces.errors import DdnnTracesError
from ddnn_traces.ingestors.options import IngestOptions
from ddnn_traces.query import views
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.store import schema


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


def test_a_regression_has_a_summary_and_prints_it(sample_dataset: Dataset) -> None:
    fit = ddnn_traces.regress(sample_dataset)
    assert fit.formula in fit.summary() and "Coefficients" in fit.summary()
    assert len(fit.summary(verbose=True)) > len(fit.summary())
    assert str(fit) == fit.summary()
    assert html.escape(fit.formula) in fit._repr_html_()


def test_tables_are_relations(sample_dataset: Dataset) -> None:
    """Those of the open runs, by name; a wrong name gets the nearest one."""
    run = sample_dataset.run_ids[0]
    with ddnn_traces.open(sample_dataset.path, runs=run) as opened:
        for table in schema.TABLES:
            assert getattr(opened, table).count("*").fetchall() == [(opened.row_counts()[table],)]
        large = opened.flows.filter("packets > 100").pl()
        assert large["run_id"].unique().to_list() == [run] and (large["packets"] > 100).all()
        assert {*schema.TABLES, "query", "sql", "plot"} <= {*dir(opened)}
        with pytest.raises(AttributeError, match="a dataset has no flow; did you mean flows"):
            opened.flow  # noqa: B018
        with pytest.raises(AttributeError, match=r"a dataset has no nothing; dir\(\) lists what it has$"):
            opened.nothing  # noqa: B018


def test_a_notebook_shows_a_dataset_as_a_table(tmp_path: Path, sample_dataset: Dataset) -> None:
    """Its rows by table; a hostile name of a folder is text."""
    shown = sample_dataset._repr_html_()
    assert f"<td>flows</td><td>{sample_dataset.row_counts()['flows']:,}</td>" in shown
    hostile = tmp_path / "<img src=x>"
    hostile.symlink_to(sample_dataset.path)
    with ddnn_traces.open(hostile) as opened:
        assert "<img" not in opened._repr_html_()


def test_queries_are_functions_that_a_console_completes(sample_dataset: Dataset) -> None:
    queries = sample_dataset.queries
    assert {*queries} <= {*dir(queries)}
    assert not {*queries} & {*dir(dict)}, "a method of dict would hide it"
    asked, named = queries.run_spans(), sample_dataset.query("run_spans")
    assert asked.equals(named) and asked.height == len(sample_dataset.run_ids)
    coarse = sample_dataset.query("pair_throughput", window_ms=100.0)
    assert queries.pair_throughput(window_ms=100.0).height == coarse.height < queries.pair_throughput().height
    assert queries["topology"].question in str(queries.topology.__doc__)
    with pytest.raises(AttributeError, match="no query named topolgy; the nearest are topology"):
        queries.topolgy  # noqa: B018


def test_names_are_those_that_users_call() -> None:
    assert {*dir(ddnn_traces)} == {*ddnn_traces.__all__, "errors", "__version__"}
    assert all(hasattr(ddnn_traces, name) for name in dir(ddnn_traces))


def test_errors_name_parameters_of_python(tmp_path: Path) -> None:
    """And commands as they are typed."""
    with pytest.raises(DdnnTracesError, match=r"^`clock_offset` inf: not a number of seconds") as raised:
        ddnn_traces.ingest("x", tmp_path / "dataset", clock_offset=float("inf"))
    assert raised.value.for_command.startswith("--clock-offset inf: ")
    with pytest.raises(DdnnTracesError, match=r"^`jobs` 0 is not a number of threads"):
        ddnn_traces.ingest("x", tmp_path / "dataset", jobs=0)
    with pytest.raises(TypeError, match=r"publish\(\) has no argument titel; did you mean title"):
        ddnn_traces.publish("dataset", tmp_path / "release", titel="Rings")


@pytest.mark.long
@pytest.mark.parametrize("name", ["diagnose", "regress", "predict", "write_report"])
def test_a_path_in_the_place_of_an_open_dataset_is_an_error(name: str, tmp_path: Path) -> None:
    message = rf"dataset: {name}\(\) takes an open one: ddnn_traces.open\('traces'\)"
    with pytest.raises(DdnnTracesError, match=message):
        getattr(ddnn_traces, name)("traces", tmp_path / "out")
    with pytest.raises(DdnnTracesError, match=message):
        getattr(ddnn_traces, name)(dataset=Path("traces"))


def test_tables_of_one_file(tmp_path: Path, sample: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a dataset has them; in chunks they are the same rows. No query is made for them, which would take seconds."""
    monkeypatch.delattr(views, "_query")
    folder = sample / "torch-mlp1-sgd-32-gloo-0ms-ring"
    capture, log = folder / "worker-1-tcpdump.pcap.gz", folder / "train_history-worker-1.log"
    (tmp_path / "a.pcap.gz").symlink_to(capture)
    with pytest.raises(DdnnTracesError, match=r"no training steps; log= names the training log"):
        ddnn_traces.read_pcap(tmp_path / "a.pcap.gz", table="step_flows")
    steps = ddnn_traces.read_pcap(tmp_path / "a.pcap.gz", table="step_flows", log=log)
    flows = ddnn_traces.read_pcap(tmp_path / "a.pcap.gz")
    assert steps["wire_bytes"].sum() == flows["wire_bytes"].sum()
    assert steps["step"].n_unique() > 2
    windows = ddnn_traces.read_pcap(tmp_path / "a.pcap.gz", table="flow_windows", window_ms=100.0)
    assert windows["wire_bytes"].sum() == flows["wire_bytes"].sum()
    with pytest.raises(DdnnTracesError, match=r"table='flow': did you mean flows"):
        ddnn_traces.read_pcap(capture, table="flow")
    with pytest.raises(DdnnTracesError, match=r"table='xyz': there are: flows, [^;]*, packets[^;.]*$"):
        ddnn_traces.read_pcap(capture, table="xyz")
    chunks = list(ddnn_traces.read_pcap_chunks(capture, rows=2048))
    assert [chunk.height for chunk in chunks[:-1]] == [2048] * (len(chunks) - 1) and len(chunks) > 1
    assert pl.concat(chunks).equals(ddnn_traces.read_pcap(capture, table="packets"))


NEED_PUBLISH = ("publish", "verify", "push")  # tests/release/test_release_examples.py
EXAMPLES = [name for name in ddnn_traces.__all__ if inspect.isfunction(getattr(ddnn_traces, name))]


@pytest.mark.parametrize("name", mostly_long([name for name in EXAMPLES if name not in NEED_PUBLISH], "ingest", "open"))
def test_examples_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sample: Path, sample_dataset: Dataset
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "captures").symlink_to(sample / "torch-mlp1-sgd-32-gloo-0ms-ring")
    (tmp_path / "sample").symlink_to(sample_dataset.path)
    if name not in ("ingest", "read_pcap", "read_pcap_chunks"):
        ddnn_traces.ingest("captures", "dataset").close()
    exec(example(name), {"ddnn_traces": ddnn_traces})


def example(name: str) -> str:
    """The example of a function's docstring."""
    text = inspect.getdoc(getattr(ddnn_traces, name)) or ""
    return textwrap.dedent(text.partition("Example:\n\n")[2])


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_function_has_an_example(name: str) -> None:
    assert f"ddnn_traces.{name}(" in example(name)


@pytest.mark.parametrize(
    "name", ["ingest", "regress", "open", "predict", "write_report", "write_packets", "read_pcap", "read_pcap_chunks"]
)
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
@pytest.mark.long_after(2)
def test_an_interrupt_ends_any_wait(order: str, what: str) -> None:
    """polars' handler of SIGINT, which it sets when it is imported, would let the wait go on."""
    code = CTRL_C + WAITS.replace("ORDER", order).replace("WHAT", what)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert interrupted_in_its_wait(process) == ("interrupted\n", None)
