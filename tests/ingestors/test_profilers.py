"""What profilers recorded beside the captures: each format, whose file it is, and bad files."""

from __future__ import annotations

import gzip
import io
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.proto import serialize_length_prefixed

from ddnn_traces.chakra_format import COLL, COMP, SEND, attribute, message
from ddnn_traces.errors import LogError
from ddnn_traces.ingestors.metadata import HostEntry, RunMetadata
from ddnn_traces.ingestors.profilers import find, json_items
from ddnn_traces.ingestors.profilers.calls import element_bytes, kind_of
from ddnn_traces.ingestors.sources import RunInput
from ddnn_traces.ingestors.training_logs import Event
from ddnn_traces.messages import Messages

NS = 1_700_000_000_000_000_000


def entry(number: int, **other: Any) -> dict[str, Any]:
    """An all-reduce of 1,000 floats of the flight recorder, 0.1 s after the one before it."""
    return {
        "process_group": ["0", "default_pg"], "collective_seq_id": number, "p2p_seq_id": 0, "op_id": number,
        "is_p2p": False, "profiling_name": "nccl:all_reduce", "input_sizes": [[10, 100]], "input_dtypes": ["Float"],
        "output_sizes": [[10, 100]], "output_dtypes": ["Float"], "time_created_ns": NS + number * 100_000_000,
        "time_discovered_started_ns": 0, "time_discovered_completed_ns": NS + number * 100_000_000 + 5,
        "state": "completed",
        **other,
    }  # fmt: skip


def dump(*entries: Any) -> bytes:
    """A flight recorder's file of a group of two ranks."""
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
    return json.dumps({"entries": list(entries), "pg_config": config, "version": "2.10"}).encode()


def trace(*events: dict[str, Any], rank: int = 0, **other: Any) -> bytes:
    """A Kineto trace."""
    info = {"backend": "gloo", "rank": rank, "pg_config": [{"pg_name": "0", "ranks": [0, 1]}]}
    return json.dumps({"distributedInfo": info, "traceEvents": list(events), **other}).encode()


def read(
    folder: Path, files: dict[str, bytes], hosts: tuple[HostEntry, ...] = (), *events: Path
) -> tuple[dict[str, tuple[Event, ...]], list[str]]:
    """Events of each worker, and warnings, of a run folder with these files and captures of two workers."""
    for name, data in files.items():
        (folder / name).write_bytes(data)
    captures = tuple(folder / f"worker-{number}-tcpdump.pcap" for number in (1, 2))
    for capture in captures:
        capture.touch()
    messages = Messages()
    run = RunInput("run", folder, captures, events=events)
    found = find.read_profilers(run, RunMetadata(hosts=hosts), ("worker-1", "worker-2"), (), messages)
    return {one.worker: one.events for one in found}, [text.replace(f"{folder}/", "") for text in messages.warnings]


def test_flight_recorder(tmp_path: Path) -> None:
    late = entry(2, state="started", time_discovered_completed_ns=None)
    files = {"flight_recorder-worker-2.json": dump(entry(1), late), "nccl_trace_rank_0.json": dump(entry(1))}
    events, warnings = read(tmp_path, files)
    assert warnings == []
    assert set(events) == {"worker-1", "worker-2"}
    start_ns = NS + 100_000_000
    first, second = events["worker-2"]
    assert first == Event(
        None, "allreduce", start_ns, start_ns + 5, "nccl:all_reduce", 4000, "flight_recorder", "0", 1, "0,1",
        "completed",
    )  # fmt: skip
    assert (second.sequence, second.end_ns, second.state) == (2, None, "started")


def test_flight_recorder_of_sends(tmp_path: Path) -> None:
    """They are counted by themselves; a receive has its size in its output, an all-gather its whole one."""
    receive = entry(
        9, is_p2p=True, p2p_seq_id=4, profiling_name="nccl:recv 0<-1", input_sizes=[], input_dtypes=[],
        output_sizes=[[6]],
        output_dtypes=["BFloat16"],
    )  # fmt: skip
    gather = entry(10, profiling_name="nccl:_all_gather_base", output_sizes=[[2, 1000]])
    unknown = entry(11, profiling_name="nccl:coalesced", input_dtypes=["Float4"], output_dtypes=["Float4"])
    events, _ = read(tmp_path, {"fr_trace-rank-1.json": dump(receive, gather, unknown)})
    assert [(one.kind, one.sequence, one.bytes) for one in events["worker-2"]] == [
        ("recv", 4, 12), ("allgather", 10, 8000), ("collective", 11, None),
    ]  # fmt: skip


def test_kineto_on_gloo(tmp_path: Path) -> None:
    """Times from the base on, the step of ProfilerStep, sizes by shapes: of an all-gather those of all ranks."""
    shapes = {"Input Dims": [[1000]], "Input type": ["float"]}
    call = {
        "ph": "X",
        "cat": "user_annotation",
        "name": "gloo:all_reduce",
        "ts": 4910739188064.5,
        "dur": 2.25,
        "args": shapes,
    }
    other = [
        {"ph": "M", "name": "process_name"},
        {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#7", "ts": 4910739188000, "dur": 1000},
        {"ph": "X", "cat": "cpu_op", "name": "aten::mul", "ts": 4910739188001, "dur": 5},
        {**call, "name": "gloo:all_gather", "ts": 4910739189500.001},
        {"ph": "X", "cat": "user_annotation", "name": "Optimizer.step#SGD.step", "ts": 4910739188900, "dur": 10},
    ]
    base = 1_790_857_026_000_000_000
    packed = gzip.compress(trace(call, *other, rank=1, baseTimeNanoseconds=base))
    events, warnings = read(tmp_path, {"vm_123.456.pt.trace.json.gz": packed})
    assert warnings == ["run: kineto: 1 file of 2 ranks; nothing is known of the others"]
    gather, reduce, update = events["worker-2"]
    at_ns = base + 4_910_739_188_064_500
    assert reduce == Event(
        7, "allreduce", at_ns, at_ns + 2250, "gloo:all_reduce", 4000, "kineto", "0", None, "0,1", None
    )
    assert (gather.step, gather.kind, gather.bytes) == (None, "allgather", 8000)
    assert gather.start_ns == base + 4_910_739_189_500_001
    assert (update.step, update.kind) == (7, "update")


def test_kineto_on_a_gpu(tmp_path: Path) -> None:
    """The kernel is the collective; the host's call only where there is no kernel. Times since the epoch (old)."""
    arguments = {
        "Collective name": "_allgather_base", "dtype": "BFloat16", "In msg nelems": 512, "Out msg nelems": 1024,
        "Group size": 2, "Process Group Name": "3", "Process Group Ranks": "[4, 5]", "Seq": 8,
    }  # fmt: skip
    call = {"ph": "X", "cat": "cpu_op", "name": "record_param_comms", "ts": NS / 1000, "dur": 3, "args": arguments}
    kernel = {**call, "cat": "kernel", "name": "ncclDevKernel_AllGather_RING_LL", "ts": NS / 1000 + 40, "dur": 50}
    alone = {**call, "ts": NS / 1000 + 200, "args": {**arguments, "Seq": 9}}
    wait = {**call, "args": {**arguments, "Collective name": "wait", "Seq": 10}}
    events, _ = read(tmp_path, {"kineto-worker-1.json": trace(call, kernel, alone, wait)})
    assert [(one.sequence, one.start_ns - NS, one.bytes, one.group_ranks) for one in events["worker-1"]] == [
        (8, 40_000, 2048, "4,5"), (9, 200_000, 2048, "4,5"),
    ]  # fmt: skip


def inspected(number: int, **other: Any) -> dict[str, Any]:
    """A reduce-scatter in the README's example of verbose output, with other numbers."""
    kernels = [{"channel_id": 0, "kernel_start_ts": 1752867229235181, "kernel_stop_ts": 1752867229275811}]
    times = {"coll_start_ts": 1752867229235059, "coll_stop_ts": 1752867229235064, "kernel_events": kernels}
    call = {"coll": "ReduceScatter", "coll_sn": number, "coll_msg_size_bytes": 1000, "event_trace_ts": times}
    header = {"id": "0xe62dedaa97644a", "rank": 1, "n_ranks": 8, "nnodes": 1}
    return {"header": header, "metadata": {}, "coll_perf": {**call, **other}}


def test_nccl_inspector(tmp_path: Path) -> None:
    """The size is the whole one, the end the last kernel's. A line that is no JSON, or has no time, is left out."""
    lines = [inspected(1), inspected(2, event_trace_ts=None), inspected(3, coll="AllReduce")]
    data = "\n".join([json.dumps(lines[0]), "{broken", *map(json.dumps, lines[1:]), '{"header": {']).encode()
    events, warnings = read(tmp_path, {"nccl-inspector-host-pid7.log": data})
    start_ns, end_ns = 1752867229235059000, 1752867229275811000
    (reduced, scattered) = events["worker-2"]
    assert scattered == Event(
        None, "reduce_scatter", start_ns, end_ns, "ReduceScatter", 8000, "nccl_inspector", "0xe62dedaa97644a", 1
    )
    assert (reduced.kind, reduced.bytes, reduced.sequence) == ("allreduce", 1000, 3)
    assert warnings == [
        "nccl-inspector-host-pid7.log: 2 documents without header and coll_perf not read",
        "nccl-inspector-host-pid7.log: 1 collective without event_trace_ts not read; NCCL_INSPECTOR_DUMP_VERBOSE=1 "
        "writes it",
    ]


def timeline(*events: dict[str, Any], micros: int | None = NS // 1000) -> bytes:
    """A timeline of Horovod, as timeline.cc writes it: its start, and the names of three tensors."""
    start = {"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros": micros}}
    names = [{"name": "process_name", "ph": "M", "pid": pid, "args": {"name": f"grad.{pid}"}} for pid in (1, 2, 3)]
    return json.dumps([start, *names, *events]).encode()


def interval(pid: int, begin: int, end: int, name: str, *inside: dict[str, Any], **tensor: str) -> list[dict[str, Any]]:
    """An interval of a tensor, us, with what is inside."""
    ended = {"ph": "E", "ts": end, "pid": pid} | ({"args": tensor} if tensor else {})
    return [{"ph": "B", "name": name, "ts": begin, "pid": pid}, *inside, ended]


def fused() -> list[dict[str, Any]]:
    """Two tensors that are reduced as one from 30 to 80 us; rank 3 is the last that is ready."""
    ready = [{"ph": "X", "name": str(rank), "ts": 5 + rank, "pid": 1, "dur": 0} for rank in (0, 2, 1, 3)]
    (one, *inner_one, one_end), (two, *inner_two, two_end) = (
        interval(
            pid, 20 + pid, 90 + pid, "ALLREDUCE", *interval(pid, 23, 29, "MEMCPY_IN_FUSION_BUFFER"),
            *interval(pid, 29 + pid, 78 + pid, "GLOO_ALLREDUCE"), *interval(pid, 82, 85, "MEMCPY_OUT_FUSION_BUFFER"),
            dtype="float32", shape="[100, 10]",
        )
        for pid in (1, 2)
    )  # fmt: skip
    return [
        *interval(1, 1, 9, "NEGOTIATE_ALLREDUCE", *ready), {"ph": "i", "name": "CYCLE_START", "ts": 19, "s": "g"},
        one, two, *inner_one, *inner_two, one_end, two_end,
    ]  # fmt: skip


def test_horovod_timeline(tmp_path: Path) -> None:
    """Fused tensors are one collective, from its first activity that sends to its last; the coordinator is rank 0."""
    gathered = interval(3, 100, 180, "ALLGATHER", *interval(3, 110, 170, "MPI_ALLGATHER"), dtype="int64", shape="[8]")
    scattered = interval(1, 200, 280, "REDUCESCATTER", dtype="float16", shape="[8]")
    cut = interval(2, 300, 380, "BROADCAST", *interval(2, 310, 370, "NCCL_BCAST"), dtype="float16", shape="[]")[:-1]
    events, warnings = read(tmp_path, {"timeline.json": timeline(*fused(), *gathered, *scattered, *cut)})
    assert warnings == ["timeline.json: 1 collective without an end not read"]
    found = [(one.kind, one.name, one.start_ns - NS, (one.end_ns or 0) - NS, one.bytes) for one in events["worker-1"]]
    assert found == [
        ("allreduce", "grad.1 and 1 other", 30_000, 80_000, 8000), ("allgather", "grad.3", 110_000, 170_000, 64),
        ("reduce_scatter", "grad.1", 200_000, 280_000, None),
    ]  # fmt: skip
    assert {(one.profiler, one.group_ranks) for one in events["worker-1"]} == {("horovod_timeline", "0,1,2,3")}


@pytest.mark.parametrize(
    ("data", "count", "line"),
    [
        (timeline(*fused(), micros=None), 0, "has no start_time_since_epoch_in_micros: it is no timeline of Horovod"),
        (timeline(*fused(), micros=2**60), 0, "has no start_time_since_epoch_in_micros"),
        (timeline(*fused())[:-30], 0, "1 collective without an end not read"),
        (timeline(*fused(), 5, {"ph": "B"}, {"ph": "E", "ts": 7, "pid": 3}, {"ph": "B", "ts": -1, "pid": 1}), 1,  # type: ignore[arg-type]
         "4 events without a tensor, a time or a begin not read"),
    ],
)  # fmt: skip
def test_odd_timelines(tmp_path: Path, data: bytes, count: int, line: str) -> None:
    events, warnings = read(tmp_path, {"timeline-worker-1.json": data})
    assert len(events.get("worker-1", ())) == count
    assert any(line in text for text in warnings)


@pytest.mark.parametrize(
    ("dtype", "shape"), [("float128", "[9]"), ("float32", "[9, -1]"), ("float32", f"[{'9, ' * 40}9]")]
)
def test_sizes_that_a_timeline_does_not_tell(tmp_path: Path, dtype: str, shape: str) -> None:
    data = timeline(*interval(1, 5, 9, "ALLREDUCE", dtype=dtype, shape=shape))
    events, warnings = read(tmp_path, {"timeline-worker-1.json": data})
    assert ([one.bytes for one in events["worker-1"]], warnings) == ([None], [])


def chakra(*nodes: Any) -> bytes:
    """A rank's Chakra execution trace."""
    file = io.BytesIO()
    for one in (message("GlobalMetadata", version="0.0.4"), *nodes):
        serialize_length_prefixed(one, file)
    return file.getvalue()


def called(number: int, kind: int, start_us: int = NS // 1000, duration_us: int = 5, **values: Any) -> Any:
    attributes = [attribute(name, value) for name, value in values.items()]
    return message(
        "Node", id=number, name=f"node {number}", type=kind, start_time_micros=start_us, duration_micros=duration_us,
        attr=attributes,
    )  # fmt: skip


def test_chakra(tmp_path: Path) -> None:
    """Of an all-gather comm_size is a rank's part; computations are left out, a cut file gives what is before."""
    trace = chakra(
        called(0, COMP), called(1, COLL, comm_type=2, comm_size=100, pg_name="7"), called(2, COLL, comm_type=77),
        called(3, SEND, duration_us=0, comm_size=5, comm_dst=0, comm_tag=1), called(4, COLL, comm_type=0, comm_size=9),
    )  # fmt: skip
    files = {"app.1.et": trace[:-20], "app.0.et": chakra(called(1, COLL, start_us=70, comm_type=9))}
    events, warnings = read(tmp_path, {"comm_groups.json": b'{"7": [0, 1]}', **files})
    gathered, sent = events["worker-2"]
    assert sent == Event(None, "send", NS, None, "node 3", 5, "chakra")
    assert gathered == Event(None, "allgather", NS, NS + 5000, "node 1", 200, "chakra", "7", None, "0,1")
    assert [(one.kind, one.start_ns) for one in events["worker-1"]] == [("barrier", 70_000)]
    assert warnings == [
        "app.1.et: ends in the middle of message 5, or is no Chakra trace; 2 events before that read",
        "app.1.et: 1 node without comm_type or a time in range not read",
    ]
    _, warnings = read(tmp_path, {"app.1.et": b"hello", "app.0.et": b""})
    assert warnings == [
        "app.0.et: is empty; not read", "app.1.et: ends in the middle of message 0, or is no Chakra trace; not read",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("nccl:reduce_scatter_tensor_coalesced", "reduce_scatter"), ("gloo:all_to_all", "alltoall"),
        ("c10d::allreduce_", "allreduce"), ("AllReduce", "allreduce"), ("nccl:send 0->1", "send"),
        ("nccl:ALLTOALL_BASE", "alltoall"),
        ("gloo:barrier", "barrier"), ("nccl:coalesced", None), ("", None),
    ],
)  # fmt: skip
def test_names_of_collectives(name: str, kind: str | None) -> None:
    assert kind_of(name) == kind


def test_sizes_of_elements() -> None:
    names = ("Float", "c10::Half", "long int", "Float8_e4m3fn", "torch.bfloat16", "QInt4", 7)
    assert [element_bytes(name) for name in names] == [4, 2, 8, 1, 2, None, None]


# --- whose file


def test_the_rank_that_run_toml_states(tmp_path: Path) -> None:
    hosts = (HostEntry("10.0.0.1", "gpu-a", "worker", 1, None), HostEntry("10.0.0.2", "gpu-b", "worker", 0, None))
    files = {
        "nccl_trace_rank_0.json": dump(entry(1)),
        "kineto_rank7.json": dump(entry(1)),
        "kineto-mine.json": dump(entry(1)),
    }
    events, warnings = read(tmp_path, files, hosts)
    assert set(events) == {"gpu-b", "rank-7", "kineto-mine"}
    assert warnings == [
        "kineto-mine.json: neither a host of the run nor a rank is in its name, so it belongs to no host; name it "
        "flight_recorder-HOST.json or flight_recorder-rank-N.json",
        "kineto_rank7.json: rank 7 is no host's of the run; state rank under [[hosts]] of run.toml",
    ]


def test_name_and_content_contradict(tmp_path: Path) -> None:
    call = {"ph": "X", "cat": "user_annotation", "name": "gloo:barrier", "ts": 5, "dur": 1}
    events, warnings = read(tmp_path, {"kineto-worker-2.json": trace(call, rank=0)})
    assert set(events) == {"worker-2"}
    assert (
        warnings[0] == "kineto-worker-2.json: worker-2 by its name or folder, which counts, but rank 0 by its content"
    )


def test_a_file_that_the_call_names(tmp_path: Path) -> None:
    """Under any name, and once: what is in two files is taken once."""
    (tmp_path / "elsewhere").mkdir()
    path = tmp_path / "elsewhere" / "mine-worker-1.txt"
    path.write_bytes(dump(entry(1), entry(2)))
    events, warnings = read(tmp_path, {"flight_recorder-worker-1.json": dump(entry(2))}, (), path)
    assert [one.sequence for one in events["worker-1"]] == [1, 2]
    assert warnings == [
        "flight_recorder-worker-1.json: the ring buffer begins at collective 2 of group '0'; earlier ones were "
        "overwritten",
        "run: 1 event of worker-1 in two files, taken once",
    ]


# --- bad files: one line, and the rest is read


def cut(data: bytes, share: float) -> bytes:
    return data[: int(len(data) * share)]


FOUR = dump(*(entry(number) for number in range(1, 5)))
BAD: dict[str, tuple[bytes, int, str]] = {
    "pickled": (pickle.dumps({"entries": []}), 0, "is a pickled dump, which is never read, since unpickling"),
    "zip of torch.save": (b"PK\x03\x04abc", 0, "is a pickled dump"),
    "cut": (cut(FOUR, 0.6), 2, "ends in the middle of an item, or is no JSON there; 2 events before that read"),
    "cut, compressed": (cut(gzip.compress(FOUR, 0), 0.6), 2, "its compression is cut off or damaged; 2 events before"),
    "empty": (b"", 0, "is no JSON object or array; not read"),
    "text": (b"hello", 0, "is no JSON object or array; not read"),
    "another format": (b'{"nodes": []}', 0, "is none of the formats that are read (docs/profilers.md); not read"),
    "deep": (b'{"entries": [' + b"[" * 200_000, 0, "lists or objects are nested too deeply; not read"),
    "wrong entries": (dump(entry(1), 5, {}, entry(2, time_created_ns=-1), entry(3, process_group=None)), 1,
                      "4 records without process_group, profiling_name or time_created_ns not read"),
    "twice": (dump(entry(1), entry(1, time_created_ns=NS)), 2,
              "1 collective recorded twice, the first is 1 of group '0'; all are kept"),
    "odd numbers": (b'{"entries": [{"time_created_ns": 1e999, "collective_seq_id": NaN}], "pg_config": [[1]]}', 0,
                    "1 record without process_group"),
    "huge number": (b'{"entries": [' + b"9" * 5000 + b"]}", 0, "ends in the middle of an item, or is no JSON there"),
    "odd sizes": (dump(entry(1, input_sizes=[[2**62, 2**62]], output_sizes=[[True]], collective_seq_id=-3)), 1, ""),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_files(tmp_path: Path, name: str) -> None:
    data, count, line = BAD[name]
    events, warnings = read(tmp_path, {"flight_recorder-worker-1.json": data, "nccl_trace_rank_1.json": dump(entry(1))})
    assert len(events.get("worker-1", ())) == count
    assert len(events["worker-2"]) == 1
    own = [text for text in warnings if text.startswith("flight_recorder-worker-1.json: ")]
    assert len(own) == bool(line)
    assert not line or own[0].startswith(f"flight_recorder-worker-1.json: {line}")


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"ts": "5"}, "1 event without a time in range not read"),
        ({"dur": -1}, "1 event without a time in range not read"),
        ({"ts": 1e300}, "1 event without a time in range not read"),
        ({"ts": -5}, "1 event outside of 1970 to 2116 not read"),
    ],
)
def test_odd_times_of_kineto(tmp_path: Path, change: dict[str, Any], line: str) -> None:
    call = {"ph": "X", "cat": "user_annotation", "name": "gloo:barrier", "ts": 5, "dur": 1, "args": None}
    events, warnings = read(tmp_path, {"kineto-worker-1.json": trace({**call, **change}, call)})
    assert len(events["worker-1"]) == 1
    assert warnings[0] == f"kineto-worker-1.json: {line}"


def test_links_and_folders_of_such_names(tmp_path: Path) -> None:
    (tmp_path / "kineto-worker-1.json").mkdir()
    (tmp_path / "kineto-worker-2.json").symlink_to("/nowhere")
    assert read(tmp_path, {}) == ({}, [])


# --- JSON, item by item


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[bytes], list[Any]]:
    """The items of a file that is read three characters at a time."""
    monkeypatch.setattr(json_items, "_CHUNK", 3)

    def of(data: bytes) -> list[Any]:
        path = tmp_path / "file.json"
        path.write_bytes(data)
        reader = json_items.Reader(path)
        try:
            return list(json_items.items(reader))
        finally:
            reader.close()

    return of


def test_items(pieces: Callable[[bytes], list[Any]]) -> None:
    data = '\ufeff {"a" : [1, 12345.5, {"b": [2, "é"]}] , "c":{"d":null},"e":[ ], "f": 17 }'.encode()
    assert pieces(data) == [("a", 1), ("a", 12345.5), ("a", {"b": [2, "é"]}), ("c", {"d": None}), ("f", 17)]
    assert pieces(b"[1,22,[3]]") == [("", 1), ("", 22), ("", [3])]


def test_an_item_larger_than_memory_should_hold(
    pieces: Callable[[bytes], list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_items, "MOST_ITEM", 1000)
    with pytest.raises(LogError, match="an item has more than 1,000 characters"):
        pieces(b'{"a": "' + b"x" * 100_000)
    monkeypatch.setattr(json_items, "MOST_FILE", 5000)
    with pytest.raises(LogError, match="has more than 5,000 bytes"):
        pieces(b'{"a": [' + b"1," * 10_000)
