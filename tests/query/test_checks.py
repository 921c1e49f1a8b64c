"""Data checks: silent on a sound dataset, and each finds what was broken by hand."""

from __future__ import annotations

import shutil
import threading
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import packets as p
import polars as pl
import pyarrow as pa
import pytest
from datasets import write_dataset
from polars.testing import assert_frame_equal
from small_runs import (
    BEGIN_NS,
    SPACING_NS,
    A,
    B,
    C,
    D,
    Packet,
    contradictions,
    found_by,
    ingest,
    passing,
    read_folder,
    ring,
    write_captures,
    write_log,
)

import ddnn_traces
from ddnn_traces.errors import QueryError
from ddnn_traces.query import checks
from ddnn_traces.query.dataset import Dataset, StoredViews
from ddnn_traces.store import schema
from ddnn_traces.store.writer import partition

Change = Callable[[pl.DataFrame], pl.DataFrame]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset with rows in every table: TCP both ways, GRE in VXLAN, RoCEv2, a log, packets."""
    top = tmp_path_factory.mktemp("sound")
    tcp = [Packet(0, A, B, 100), Packet(0, B, A, 7, ports=(5000, 40000)), Packet(0, A, B, 50, seq=100)]
    gre = p.ipv4(p.gre(p.ipv4(p.tcp(bytes(9)), C, D)), C, D, p.GRE)
    roce = [p.udp(p.roce(bytes(size), opcode), 50000, p.ROCE_PORT) for opcode, size in ((4, 100), (17, 4), (4, 50))]
    frames = [packet.record.frame for packet in tcp]
    frames += [p.ethernet(p.ipv4(p.udp(p.vxlan(p.ethernet(gre)), 50000, p.VXLAN_PORT), A, B, p.UDP))] * 2
    frames += [p.ethernet(p.ipv4(datagram, A, B, p.UDP)) for datagram in roce]
    records = [p.Record(BEGIN_NS + i * 20 * SPACING_NS, frame) for i, frame in enumerate(frames)]
    folder = write_captures(top / "run", {})
    (folder / "worker-1.pcap").write_bytes(p.pcap(records))
    write_log(folder, "worker-1", [BEGIN_NS + i * 30 * SPACING_NS for i in range(1, 7)])
    with read_folder(folder, packets=True) as dataset:
        assert contradictions(dataset) == {}
    return top / "dataset"


def offending(dataset: Dataset) -> dict[str, int]:
    """Checks that found something, and how many rows."""
    return {name: rows.num_rows for name, rows in checks.run_checks(dataset).items() if rows.num_rows}


@pytest.mark.long
def test_sound_datasets_pass(sound: Path, sample_dataset: Dataset) -> None:
    assert offending(sample_dataset) == {}
    with ddnn_traces.open(sound) as dataset:
        assert offending(dataset) == {}
        for table in ("flow_opcodes", "packets", "step_flows", "encapsulations"):  # or nothing could break there
            assert dataset.sql(f"FROM {table}").height > 1


def first(column: str, value: pl.Expr | int | None) -> Change:
    """The first row where the column is not null gets another value there."""

    def change(rows: pl.DataFrame) -> pl.DataFrame:
        at = rows[column].is_not_null().arg_max()
        new = value if isinstance(value, pl.Expr) else pl.lit(value, rows.schema[column])
        return rows.with_columns(pl.when(pl.int_range(pl.len()) == at).then(new).otherwise(column).alias(column))

    return change


def drop(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.slice(1)


def unchanged(rows: pl.DataFrame) -> pl.DataFrame:
    return rows


def nothing(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.clear()


def moved(rows: pl.DataFrame) -> pl.DataFrame:
    """A packet's worth of bytes from the first row to the last: the table's sum is as it was."""
    at = pl.int_range(pl.len())
    sign = pl.when(at == 0).then(-1).when(at == pl.len() - 1).then(1).otherwise(0)
    return rows.with_columns(pl.col("wire_bytes") + sign)


def captured_twice(rows: pl.DataFrame) -> pl.DataFrame:
    """The first TCP flow has 20,000 more bytes, all of which it had before."""
    at = (rows["protocol"] == 6).arg_max()
    more = pl.when(pl.int_range(pl.len()) == at).then(20_000).otherwise(0)
    return rows.with_columns(pl.col("payload_bytes", "retransmitted_bytes") + more)


BROKEN = [
    ("flow_windows", moved, {"flow_parts"}),
    ("flow_windows", drop, {"flow_parts", "flows_match_ledger"}),
    ("step_flows", moved, {"flow_parts"}),
    ("step_flows", nothing, {"flow_parts"}),
    ("flow_opcodes", drop, {"flow_parts"}),
    ("flow_opcodes", first("flow_id", 0), {"flow_parts"}),
    ("packets", drop, {"flow_parts"}),
    ("packets", first("payload_bytes", 1), {"flow_parts"}),
    ("packets", first("flow_id", 99), {"flow_parts"}),
    ("messages", drop, {"message_parts"}),
    ("messages", first("bytes", 1), {"message_parts"}),
    ("messages", first("first_ns", 1), {"message_parts"}),
    ("messages", first("flow_id", 99), {"message_parts"}),
    ("flows", first("payload_bytes", 1), {"flow_parts", "message_parts"}),
    ("flows", first("reverse_flow_id", 2), {"flow_references"}),
    ("flows", first("reverse_flow_id", None), {"flow_references"}),
    ("flows", first("dst_port", 1), {"flow_references"}),
    ("flows", first("encapsulation_id", 7), {"flow_references"}),
    ("encapsulations", nothing, {"flow_references"}),
    ("encapsulations", first("parent_id", 7), {"flow_references"}),
    ("capture_ledger", drop, {"ledger", "flows_match_ledger"}),
    ("captures", first("records", 3), {"ledger"}),
    ("flows", first("missed_bytes", 1000), {"capture_loss"}),
    ("flows", captured_twice, {"captured_copies", "flow_parts"}),
]


def with_a_twin(rows: pl.DataFrame) -> pl.DataFrame:
    """The first flow is there twice."""
    return pl.concat([rows, rows.filter(flow_id=0).with_columns(flow_id=pl.lit(98, pl.Int64))])


# --- a training with logs, phases and captures at both ends

STEP_NS = 30 * SPACING_NS


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three workers that see both directions, each with a log of four steps and its phases."""
    top = tmp_path_factory.mktemp("trained")
    packets = ring(A, B, C, rounds=20)
    captures = {f"worker-{n}.pcap": filter(passing(host), packets) for n, host in enumerate((A, B, C), 1)}
    folder = write_captures(top / "run", captures)
    (folder / "run.toml").write_text("workers = 3\n")
    for worker in ("worker-1", "worker-2", "worker-3"):
        ends = [BEGIN_NS + i * STEP_NS for i in range(1, 5)]
        write_log(folder, worker, ends)
        rows = [
            ",".join(
                [str(step), *(f"{ns // 10**9}.{ns % 10**9:09d}" for ns in (end - STEP_NS, end - 90, end - 50, end))]
            )
            for step, end in enumerate(ends)
        ]
        (folder / f"phases-{worker}.csv").write_text(
            "\n".join(["step,t_begin,t_comm_begin,t_comm_end,t_end", *rows, ""])
        )
    with read_folder(folder, packets=True) as dataset:
        assert contradictions(dataset) == {}
        counts = dataset.sql("SELECT (SELECT count(*) FROM steps) AS steps, (SELECT count(*) FROM events) AS events")
        assert counts.row(0) == (12, 36)
    return top / "dataset"


def at(column: str, row: int, value: object) -> Change:
    """Another value in one row."""

    def change(rows: pl.DataFrame) -> pl.DataFrame:
        new = pl.lit(value, rows.schema[column])
        return rows.with_columns(pl.when(pl.int_range(pl.len()) == row).then(new).otherwise(column).alias(column))

    return change


def everywhere(column: str, value: pl.Expr | object) -> Change:
    def change(rows: pl.DataFrame) -> pl.DataFrame:
        new = value if isinstance(value, pl.Expr) else pl.lit(value, rows.schema[column])
        return rows.with_columns(new.alias(column))

    return change


def last_event(kind: str, after_last_step: int) -> Change:
    """An event of this kind so many steps after the last step of its worker."""

    def change(rows: pl.DataFrame) -> pl.DataFrame:
        last = rows.filter(pl.col("step") == pl.col("step").max()).head(1)
        return rows.vstack(last.with_columns(pl.col("step") + after_last_step, kind=pl.lit(kind)))

    return change


def offset(by_ns: int, uncertainty_ns: int | None) -> Change:
    """The clock of every capture is off."""
    values = {"clock_offset_ns": by_ns, "clock_offset_uncertainty_ns": uncertainty_ns}
    return lambda rows: rows.with_columns(**{name: pl.lit(value, pl.Int64) for name, value in values.items()})


def later(worker: str | None, by_ns: int) -> Change:
    """The steps of a worker (None: of all) are later."""

    def change(rows: pl.DataFrame) -> pl.DataFrame:
        moved_by = by_ns if worker is None else pl.when(pl.col("worker") == worker).then(by_ns).otherwise(0)
        return rows.with_columns(pl.col("start_ns") + moved_by, pl.col("end_ns") + moved_by)

    return change


def without(column: str, value: object) -> Change:
    return lambda rows: rows.filter(pl.col(column) != value)


def all_after(rows: pl.DataFrame) -> pl.DataFrame:
    """Each flow of step_flows as one row after the training."""
    sums = rows.group_by("run_id", "flow_id", "worker").agg(
        pl.col("packets", "wire_bytes", "payload_bytes", "retransmitted_bytes").sum()
    )
    sums = sums.with_columns(position=pl.lit("after"), step=pl.lit(None, pl.Int64))
    return sums.select(rows.columns).cast(dict(rows.schema))


def in_a_tunnel_too(rows: pl.DataFrame) -> pl.DataFrame:
    """The first flow is there inside and outside of a tunnel."""
    twin = rows.filter(flow_id=0).with_columns(
        flow_id=pl.lit(99, pl.Int64), encapsulation_id=pl.lit(0, pl.Int64), reverse_flow_id=pl.lit(None, pl.Int64)
    )
    return pl.concat([rows, twin])


def with_a_copied_file(rows: pl.DataFrame) -> pl.DataFrame:
    copy = rows.filter(capture_id="worker-1.pcap").with_columns(capture_id=pl.lit("copy-of-1.pcap"))
    return pl.concat([rows, copy])


def sent_again(retransmitted: int) -> Change:
    sizes = {"payload_bytes": 2_000_000, "retransmitted_bytes": retransmitted}
    return lambda rows: rows.with_columns(**sizes)


def link(bandwidth_mbit: float, burst_bytes: int | None) -> Change:
    """Every link is declared to have this rate and burst."""
    burst = pl.lit(burst_bytes, pl.Int64)
    return lambda rows: rows.with_columns(bandwidth_mbit=pl.lit(bandwidth_mbit, pl.Float64), burst_bytes=burst)


BROKEN_IN_A_TRAINING = [
    # keys
    ("runs", nothing, {"orphan_keys"}),
    ("hosts", without("host_ip", B), {"orphan_keys", "missing_worker"}),
    ("captures", at("vantage_ip", 0, D), {"orphan_keys", "missing_worker"}),
    ("packets", at("capture_id", 0, "nowhere.pcap"), {"orphan_keys"}),
    ("events", at("step", 0, 99), {"orphan_keys"}),
    ("events", at("worker", 0, "worker-9"), {"orphan_keys"}),
    ("events", last_event("checkpoint", 1), set()),  # after the last step
    ("events", last_event("checkpoint", 2), {"orphan_keys"}),
    ("events", last_event("communicate", 1), {"orphan_keys"}),
    ("step_flows", at("step", 0, 99), {"orphan_keys"}),
    ("step_flows", at("worker", 0, "worker-9"), {"orphan_keys"}),
    ("steps", without("worker", "worker-2"), {"orphan_keys"}),
    # times
    ("steps", at("start_ns", 1, BEGIN_NS + STEP_NS - 1), {"steps_overlap"}),
    ("steps", at("step", 1, 0), {"steps_overlap", "orphan_keys"}),
    ("steps", at("start_ns", 3, BEGIN_NS + 9 * STEP_NS), {"negative_durations"}),
    ("events", at("end_ns", 0, BEGIN_NS - 1), {"negative_durations"}),
    ("flows", at("last_seen_ns", 0, BEGIN_NS - 1), {"negative_durations", "message_parts"}),
    ("captures", at("last_ns", 0, BEGIN_NS - 1), {"negative_durations"}),
    # clocks
    ("runs", everywhere("clock_offset_estimate_ns", 20_000_001), {"log_clock"}),
    ("runs", everywhere("clock_offset_estimate_ns", -20_000_001), {"log_clock"}),
    ("runs", everywhere("clock_offset_estimate_ns", 20_000_000), set()),
    ("step_flows", all_after, {"log_clock"}),
    ("steps", later("worker-2", 10**9), {"log_clock"}),
    ("steps", later(None, 10**9), set()),  # no packet is binned anew; what it does to step_flows is all_after
    ("captures", offset(5_200_001, 200_000), {"host_clock"}),
    ("captures", offset(-5_200_001, 200_000), {"host_clock"}),
    ("captures", offset(5_200_000, 200_000), set()),
    ("captures", offset(10**9 + 1, None), {"host_clock"}),  # of one direction: the delay is in it
    ("captures", offset(10**9, None), set()),
    # workers
    ("runs", everywhere("workers", 4), {"missing_worker"}),
    ("runs", everywhere("workers", 2), set()),
    ("hosts", everywhere("label", pl.lit("somebody")), {"missing_worker"}),
    ("hosts", everywhere("label", pl.lit(None, pl.String)), set()),  # without labels a log is nobody's
    ("captures", everywhere("vantage_ip", pl.lit(None, pl.String)), set()),  # a mirror port sees all
    # links, to which each of the workers sends some KB in a window of 100 ms
    ("runs", link(0.01, 0), {"link_rate"}),
    ("runs", link(0.01, 100_000), set()),
    ("runs", link(0.01, None), {"link_rate"}),
    ("runs", link(1000, None), set()),
    # both ends
    ("packets", at("capture_id", 0, "worker-2.pcap"), {"both_vantages"}),
]


HOUR_NS = 3600 * 10**9
#: Runs of which a test looks at what is found.
NAMED: dict[str, tuple[str, dict[str, Change]]] = {
    "unbroken training": ("trained", {}),
    "flow twice": ("sound", {"flows": with_a_twin}),
    "capture twice": ("trained", dict.fromkeys(("captures", "capture_ledger"), with_a_copied_file)),
    "in a tunnel too": ("trained", {"flows": in_a_tunnel_too}),
    "applied clock offset": (
        "trained",
        {"runs": lambda rows: rows.with_columns(clock_offset_estimate_ns=HOUR_NS, clock_offset_ns=HOUR_NS)},
    ),
    **{f"sent again {size}": ("trained", {"flows": sent_again(size)}) for size in (500_000, 900_000, 1_800_000)},
}


def runs_to_break() -> dict[str, tuple[str, dict[str, Change]]]:
    """Run -> the dataset that it is a copy of, and what changes in its tables."""
    numbered = {
        f"{source} {number}": (source, {table: change})
        for source, cases in (("sound", BROKEN), ("trained", BROKEN_IN_A_TRAINING))
        for number, (table, change, _) in enumerate(cases)
    }
    return numbered | NAMED


@pytest.fixture(scope="module")
def broken(
    sound: Path, trained: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, dict[str, list[dict[str, Any]]]], set[tuple[str, str]]]:
    """What each check finds in each broken run, and the runs and checks with nothing to examine.

    All runs are in one dataset: most of a check's time does not depend on the number of runs.
    """
    folder = tmp_path_factory.mktemp("broken") / "dataset"
    shutil.copytree(sound, folder)
    for table in schema.TABLES:
        whole = {
            name: pl.read_parquet(partition(source, table, "run") / "part-0.parquet", hive_partitioning=False)
            for name, source in (("sound", sound), ("trained", trained))
        }
        for run, (source, changes) in runs_to_break().items():
            rows = changes.get(table, unchanged)(whole[source].with_columns(run_id=pl.lit(run)))
            partition(folder, table, run).mkdir()
            rows.write_parquet(partition(folder, table, run) / "part-0.parquet")
    found: dict[str, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    with ddnn_traces.open(folder) as dataset, StoredViews(dataset) as stored:
        checks.store_inputs(stored)
        stored.store_inputs("unchecked")
        for check, table in checks.run_checks(dataset).items():
            for row in table.to_pylist():
                found[row["run_id"]][check].append(row)
        unchecked = dataset.query("unchecked").filter(~pl.col("is_partial"))
        return found, set(unchecked.select("run_id", "check_name").rows())


def test_every_check_is_broken_here() -> None:
    rows = [*BROKEN, *BROKEN_IN_A_TRAINING]
    assert set[str]().union(*(found for _, _, found in rows), {"conservation"}) == checks.names()


@pytest.mark.long
def test_a_run_that_sends_less_than_its_algorithm_must_move(tmp_path: Path) -> None:
    case = Path(__file__).parents[1] / "queries" / "conservation" / "model_of_another_size_is_flagged"
    tables = {table: case / f"{table}.csv" for table in schema.TABLES}
    given = {table: pl.read_csv(path, infer_schema=False) for table, path in tables.items() if path.exists()}
    with write_dataset(tmp_path / "dataset", given) as dataset:
        assert found_by(dataset, "conservation")


@pytest.mark.parametrize("source", ["sound", "trained"])
def test_what_is_broken_is_found(broken: Any, source: str) -> None:
    problems, unchecked = broken
    expected = {
        f"{source} {number}": found
        for number, (*_, found) in enumerate(BROKEN if source == "sound" else BROKEN_IN_A_TRAINING)
    }
    assert {run: set(problems[run]) for run in expected} == expected
    if source == "trained":
        assert not {(run, check) for run, found in expected.items() for check in found} & unchecked


def test_an_unbroken_run_beside_broken_ones_passes(broken: Any) -> None:
    problems, _ = broken
    assert not problems["run"] and not problems["unbroken training"] and not problems["applied clock offset"]


def test_flow_that_is_there_twice(broken: Any) -> None:
    problems, _ = broken
    rows = problems["flow twice"]["flow_references"]
    reported = [row["flow_id"] for row in rows if row["problem"].startswith("another flow has the same addresses")]
    assert reported == [0, 98]


@pytest.mark.long
def test_captures_that_share_no_time(tmp_path: Path) -> None:
    packets = ring(A, B, rounds=20)
    half = len(packets) // 2
    captures = {
        "worker-1.pcap": [packet for packet in packets[:half] if packet.src == A],
        "worker-2.pcap": [packet for packet in packets[half:] if packet.src == B],
    }
    with ingest(tmp_path, captures) as dataset:
        found = checks.run_checks(dataset)
    assert {name for name, rows in found.items() if rows.num_rows} == {"host_clock"}
    assert found["host_clock"]["capture_id"].to_pylist() == ["worker-1.pcap", "worker-2.pcap"]


def test_a_declared_worker_without_a_capture(tmp_path: Path) -> None:
    """B sends nothing that was captured, and is declared."""
    folder = write_captures(tmp_path / "run", {"worker-1.pcap": [p for p in ring(A, B) if p.src == A]})
    entries = [f'[[hosts]]\nip = "{ip}"\nlabel = "worker-{n}"\nrole = "worker"\n' for n, ip in ((1, A), (2, B))]
    (folder / "run.toml").write_text("\n".join(["workers = 2", *entries]))
    with read_folder(folder) as dataset:
        rows = found_by(dataset, "missing_worker")
    assert [(row["worker"], row["host_ip"]) for row in rows] == [("worker-2", B), (None, None)]


def test_one_capture_given_twice_counts_twice(broken: Any) -> None:
    """What an ingest that takes copies for different packets would leave: both files count, and so do the flows."""
    problems, _ = broken
    rows = problems["capture twice"]["both_vantages"]
    assert [row["capture_id"] for row in rows] == ["copy-of-1.pcap", "worker-1.pcap"]


def test_a_flow_inside_and_outside_of_a_tunnel(broken: Any) -> None:
    problems, _ = broken
    rows = problems["in a tunnel too"]["both_vantages"]
    assert [(row["flow_id"], row["problem"]) for row in rows] == [
        (0, "flow 99 has the same packets in another tunnel, or in none"),
        (99, "flow 0 has the same packets in another tunnel, or in none"),
    ]


@pytest.mark.parametrize(("again", "is_found"), [(900_000, True), (500_000, False), (1_800_000, False)])
def test_a_flow_whose_every_segment_is_there_twice(broken: Any, again: int, is_found: bool) -> None:
    problems, _ = broken
    rows = problems[f"sent again {again}"]["both_vantages"]
    assert [row["flow_id"] for row in rows] == ([0, 1, 2, 3, 4, 5] if is_found else [])


@pytest.mark.long
def test_runs_are_halved_where_memory_is_short(sample_dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of the halves are put together."""
    sizes: list[int] = []

    def opened(runs: list[str], at_once: int) -> Dataset:
        assert at_once == 1
        sizes.append(len(runs))
        return Dataset(sample_dataset.path, runs)

    def short(dataset: Dataset) -> dict[str, pa.Table]:  # as DuckDB answers where many runs are asked
        if len(dataset.run_ids) > 3:
            raise QueryError("no memory") from duckdb.OutOfMemoryException("no memory")
        return {name: pa.table({"run_id": dataset.run_ids}) for name in checks.names()}

    monkeypatch.setattr(checks, "run_checks", short)
    rows = dict.fromkeys(sample_dataset.run_ids[:6], 1)
    assert checks.run_in_groups(opened, rows, 2)["ledger"]["run_id"].to_pylist() == list(rows)
    assert sizes == [6, 3, 3]
    monkeypatch.setattr(checks, "run_checks", lambda _: short(sample_dataset))
    with pytest.raises(QueryError, match="no memory"):
        checks.run_in_groups(opened, rows, 2)


@pytest.mark.long
def test_groups_of_runs_side_by_side(sample_dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two at once, in the order of the runs; where a run alone fills the memory of one, or there is one thread, one."""
    both_run = threading.Barrier(2, timeout=60)
    shared: list[int] = []

    def opened(runs: list[str], at_once: int) -> Dataset:
        shared.append(at_once)
        return Dataset(sample_dataset.path, runs)

    def meet(dataset: Dataset) -> dict[str, pa.Table]:
        if shared[-1] == 2:
            both_run.wait()
        return {name: pa.table({"run_id": dataset.run_ids}) for name in checks.names()}

    monkeypatch.setattr(checks, "run_checks", meet)
    runs = sample_dataset.run_ids[:4]
    half = dict.fromkeys(runs, 10_000_000)
    assert checks.run_in_groups(opened, half, 2)["ledger"]["run_id"].to_pylist() == runs
    assert shared == [2, 2]
    for rows, threads in ((half, 1), (half | {runs[0]: 30_000_000}, 2)):
        shared.clear()
        assert checks.run_in_groups(opened, rows, threads)["ledger"]["run_id"].to_pylist() == runs
        assert set(shared) == {1}


@pytest.mark.long
def test_a_check_that_fails_ends_those_of_other_runs(sample_dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query beside it would run for hours."""
    endless = threading.Event()
    runs = sample_dataset.run_ids[:2]

    def check(dataset: Dataset) -> dict[str, pa.Table]:
        if dataset.run_ids == runs[:1]:
            assert endless.wait(60)
            raise QueryError("a damaged file")
        endless.set()
        dataset.sql("SELECT sum(hash(a.range + b.range)) FROM range(10000000) AS a, range(10000000) AS b")
        raise AssertionError

    monkeypatch.setattr(checks, "run_checks", check)
    with pytest.raises(QueryError, match="a damaged file"):
        checks.run_in_groups(lambda some, _: Dataset(sample_dataset.path, some), dict.fromkeys(runs, 20_000_000), 2)


@pytest.mark.long
def test_stored_inputs_leave_conservation_as_it_is(sample_dataset: Dataset) -> None:
    with Dataset(sample_dataset.path) as opened, StoredViews(opened) as stored:
        inputs = ("pair_turns", "spilled_payload", "first_steps_received", "conservation")
        expected = {name: opened.query(name) for name in inputs}
        checks.store_inputs(stored)
        assert (expected["spilled_payload"]["late_bytes"] != 0).any()
        for name, rows in expected.items():
            assert_frame_equal(opened.query(name), rows)
