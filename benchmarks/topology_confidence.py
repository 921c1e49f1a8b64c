"""How often the query `topology` is right where it gives confidence p (docs/topology.md).

python benchmarks/topology_confidence.py tests/traces/runs MORE_CAPTURES

Runs of known topology: those of the folders (declared in run.toml, or as `topology` in truth.json), synthetic ones of
every kind by the laws and by traffic models that were fitted to the captures, the scenarios, and patterns of traffic
that are no topology. Each is changed in the ways of CHANGES; runs of datasets in those of REAL. The weights of the
query are fitted on seed 1, with data/sample as a dataset (--fit prints them); the tables are of other seeds and of
data/dataset.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from scipy.optimize import minimize

import ddnn_traces
from ddnn_traces.store import schema
from ddnn_traces.store.parquet import partition
from ddnn_traces.store.writer import DatasetWriter
from ddnn_traces.traffic.collectives import SHAPES
from ddnn_traces.traffic.model.generation import Job, ModelledRun
from ddnn_traces.traffic.model.generation import traffic as modelled
from ddnn_traces.traffic.synthetic import SyntheticRun, make_traffic, runs_of
from ddnn_traces.traffic.table_writer import write_traffic
from ddnn_traces.traffic.traffic import Traffic

TABLES = ("runs", "hosts", "flows", "steps", "step_flows", "flow_windows", "messages")
PER_FLOW = ("flows", "step_flows", "flow_windows", "messages")
SIZES = ("payload_bytes", "wire_bytes", "retransmitted_bytes", "bytes", "stream_offset")
WORDS = {"ps": "star", "parameter_server": "star", "binary_tree": "tree", "gossip": "pair_averaging"}
WORKERS = (3, 4, 5, 6, 7, 8, 9, 12)
BATCH = 150  # runs that are queried at a time
BINS = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 0.98, 1.0)

ABOUT = {"run_id": pl.String, "name": pl.String, "kind": pl.String, "change": pl.String, "names": pl.List(pl.String)}

Frames = dict[str, pl.DataFrame]
Names = frozenset[str]
Payload = Mapping[tuple[str, str], int]  # of directed pairs


@dataclass(frozen=True)
class Example:
    """A run's tables and what is right for it: names of its topology, none for no topology."""

    name: str
    kind: str
    change: str
    frames: Frames
    right: Names


# --- runs of known topology


def names(topology: str, shape: str, workers: int) -> Names:
    """The names that are right for a synthetic run: docs/topology.md lists what sends the same."""
    hosts = workers + (1 if shape == "server" else max(2, workers // 2) if shape == "apart" else 0)
    if hosts == 3 and not (topology in ("ring", "clique", "pair_averaging") or shape in ("grid", "colocated")):
        return frozenset({"star"})
    if shape == "colocated":
        return frozenset({"clique", "sharded_parameter_server"})
    if shape == "grid" and workers == 4:
        return frozenset({"halving_doubling", "hierarchical_ring"})
    if shape == "grid" and workers in (3, 5, 7):
        return frozenset({"ring"})
    if shape == "groups" and workers <= 8:
        return frozenset({"tree", "binary_tree_star"})
    return frozenset({topology})


def by_law(seed: int, rng: np.random.Generator) -> Iterator[tuple[Traffic, Names]]:
    """A run of each kind and of some sizes."""
    for topology, shapes in SHAPES.items():
        for shape in shapes:
            for workers in rng.choice(WORKERS, 4, replace=False):
                name, size = f"law {topology} {shape} {workers} {seed}", int(rng.integers(1, 20)) * 200_000
                run = SyntheticRun(
                    name, topology, int(workers), size, int(rng.integers(4, 16)), shape, bandwidth_mbit=4000.0,
                    noise=float(rng.uniform(0, 0.03)), loss_pct=float(rng.choice([0, 0, 0.5])), seed=seed,
                )  # fmt: skip
                yield make_traffic(run), names(topology, shape, int(workers))


def by_model(documents: Sequence[Any], seed: int, rng: np.random.Generator) -> Iterator[tuple[Traffic, Names]]:
    """The same from traffic models, which lose, wait and send messages as the captures do."""
    for topology, shapes in SHAPES.items():
        for shape in shapes:
            workers, number = int(rng.choice(WORKERS)), int(rng.integers(len(documents)))
            name = f"model {topology} {shape} {workers} {seed}"
            job = Job(
                workers,
                int(rng.integers(1, 5)) * 500_000,
                topology,
                int(rng.integers(4, 12)),
                shape,
                seed=seed,
                run_id=name,
            )
            yield modelled(documents[number], job), names(topology, shape, workers)


def scenarios(seed: int) -> Iterator[tuple[Traffic, Names]]:
    for run in runs_of("zerwas-79", steps=5, seed=seed):
        yield make_traffic(run), names(run.topology, run.collective.shape, run.workers)


def foreign(seed: int, rng: np.random.Generator) -> Iterator[tuple[Traffic, Names]]:
    """Traffic between workers that is none of the topologies: no name is right."""
    for kind, pattern in PATTERNS.items():
        for number in range(3):
            hosts = int(rng.integers(4, 10))
            relative = pattern(hosts, rng) * rng.choice([0.3, 0.5, 1.0, 2.0])
            run = ModelledRun(
                f"foreign {kind} {hosts} {seed} {number}", "unknown", hosts, 1_000_000, int(rng.integers(4, 12)),
                bandwidth_mbit=4000.0, seed=seed, learns=True, relative=tuple(map(tuple, relative.tolist())),
            )  # fmt: skip
            yield make_traffic(run), frozenset()


def _matrix(hosts: int, pairs: Sequence[tuple[int, int]], both: bool = True) -> Any:
    found = np.zeros((hosts, hosts))
    for i, j in pairs:
        found[i, j] = 1
        if both:
            found[j, i] = 1
    return found


def _mesh(hosts: int) -> list[tuple[int, int]]:
    """Neighbours in a grid of two rows."""
    columns = hosts // 2
    along = [(row * columns + i, row * columns + i + 1) for row in (0, 1) for i in range(columns - 1)]
    return along + [(i, columns + i) for i in range(columns)]


def _random_graph(hosts: int, rng: np.random.Generator) -> Any:
    drawn = rng.random((hosts, hosts)) < 0.4
    np.fill_diagonal(drawn, False)
    drawn[0, 1] = True
    return drawn * 1.0


def _skewed(hosts: int, rng: np.random.Generator) -> Any:
    drawn = rng.lognormal(0, 1.5, (hosts, hosts))
    np.fill_diagonal(drawn, 0)
    return drawn / drawn.max()


def _reads(hosts: int) -> Any:
    """The first host sends to all others, which send back less."""
    return _matrix(hosts, [(0, i) for i in range(1, hosts)]) * np.where(np.arange(hosts) == 0, 1, 0.3)[:, None]


def _two_rings(hosts: int) -> list[tuple[int, int]]:
    half = hosts // 2
    return [(i, (i + 1) % half) for i in range(half)] + [
        (half + i, half + (i + 1) % (hosts - half)) for i in range(hosts - half)
    ]


PATTERNS: dict[str, Callable[[int, np.random.Generator], Any]] = {
    "pipeline": lambda n, _: _matrix(n, list(pairwise(range(n)))),
    "pipeline one way": lambda n, _: _matrix(n, list(pairwise(range(n))), both=False),
    "ring both ways": lambda n, _: _matrix(n, [(i, (i + 1) % n) for i in range(n)]),
    "broadcast tree": lambda n, _: _matrix(n, [((i - 1) // 2, i) for i in range(1, n)], both=False),
    "mesh": lambda n, _: _matrix(n, _mesh(n)),
    "random graph": _random_graph,
    "skewed": _skewed,
    "one sends to all": lambda n, _: _matrix(n, [(0, i) for i in range(1, n)], both=False),
    "reads and results": lambda n, _: _reads(n),
    "shuffle": lambda n, _: _matrix(n, [(i, j) for i in range(n // 2) for j in range(n // 2, n)], both=False),
    "two rings": lambda n, _: _matrix(n, _two_rings(n), both=False),
}  # fmt: skip


# --- changes


def heavy(frames: Frames) -> list[tuple[str, str]]:
    """Directed pairs that carry at least a twentieth of what the heaviest carries."""
    pairs = frames["flows"].group_by("src_ip", "dst_ip").agg(pl.col("payload_bytes").sum()).sort("src_ip", "dst_ip")
    wanted = pairs.filter(pl.col("payload_bytes") >= 0.05 * pl.col("payload_bytes").max())
    return list(wanted.select("src_ip", "dst_ip").rows())


def in_steps(frames: Frames) -> Payload:
    """Payload inside steps of the directed pairs that have some."""
    inside = frames["step_flows"].filter(pl.col("position") == "during").join(frames["flows"], on="flow_id")
    sums = inside.group_by("src_ip", "dst_ip").agg(pl.col("payload_bytes").sum()).filter(pl.col("payload_bytes") > 0)
    return {(src, dst): payload for src, dst, payload in sums.rows()}


def exchanged(payload: Payload) -> set[tuple[str, str]]:
    """The pairs that carry at least a twentieth of what the heaviest carries."""
    return {pair for pair, size in payload.items() if size >= 0.05 * max(payload.values())}


def scaled(frames: Frames, factor: pl.Expr) -> Frames:
    """Payload and wire bytes of flows times a factor, an expression over flows; without flows of factor 0."""
    factors = frames["flows"].select("flow_id", factor.cast(pl.Float64).alias("factor"))
    found = dict(frames)
    for name in PER_FLOW:
        rows = frames[name].join(factors, on="flow_id").filter(pl.col("factor") > 0)
        sizes = [column for column in SIZES if column in rows.columns]
        found[name] = rows.with_columns((pl.col(size) * pl.col("factor")).cast(pl.Int64) for size in sizes).drop(
            "factor"
        )
    return found


def _of_pairs(pairs: Sequence[tuple[str, str]]) -> pl.Expr:
    return pl.any_horizontal(*((pl.col("src_ip") == src) & (pl.col("dst_ip") == dst) for src, dst in pairs))


def _lose_pair(frames: Frames, rng: np.random.Generator) -> Frames:
    pairs = heavy(frames)
    return scaled(frames, ~_of_pairs([pairs[rng.integers(len(pairs))]]))


def _lose_link(frames: Frames, rng: np.random.Generator) -> Frames:
    pairs = heavy(frames)
    src, dst = pairs[rng.integers(len(pairs))]
    return scaled(frames, ~_of_pairs([(src, dst), (dst, src)]))


def _lose_two_links(frames: Frames, rng: np.random.Generator) -> Frames:
    return _lose_link(_lose_link(frames, rng), rng)


def _host(frames: Frames, rng: np.random.Generator) -> str:
    hosts = sorted({host for pair in heavy(frames) for host in pair})
    return hosts[rng.integers(len(hosts))]


def _lose_capture(frames: Frames, rng: np.random.Generator) -> Frames:
    return scaled(frames, pl.col("src_ip") != _host(frames, rng))


def _lose_host(frames: Frames, rng: np.random.Generator) -> Frames:
    host = _host(frames, rng)
    return scaled(frames, (pl.col("src_ip") != host) & (pl.col("dst_ip") != host))


def _lose_bytes_of_pair(frames: Frames, rng: np.random.Generator) -> Frames:
    pairs = heavy(frames)
    return scaled(
        frames, pl.when(_of_pairs([pairs[rng.integers(len(pairs))]])).then(rng.uniform(0.1, 0.95)).otherwise(1.0)
    )


def _lose_bytes_of_host(frames: Frames, rng: np.random.Generator) -> Frames:
    return scaled(frames, pl.when(pl.col("src_ip") == _host(frames, rng)).then(rng.uniform(0.1, 0.95)).otherwise(1.0))


def _lose_bytes(frames: Frames, rng: np.random.Generator) -> Frames:
    return scaled(frames, pl.lit(rng.uniform(0.3, 0.97)))


def _without_log(frames: Frames, _: np.random.Generator) -> Frames:
    return frames | {"steps": frames["steps"].clear(), "step_flows": frames["step_flows"].clear()}


def _without_model_bytes(frames: Frames, _: np.random.Generator) -> Frames:
    unknown = ("model_bytes", "model_params", "workers")
    return frames | {"runs": frames["runs"].with_columns(pl.lit(None, pl.Int64).alias(name) for name in unknown)}


def _without_either(frames: Frames, rng: np.random.Generator) -> Frames:
    return _without_model_bytes(_without_log(frames, rng), rng)


def _other_model_bytes(frames: Frames, rng: np.random.Generator) -> Frames:
    """Half of the declared bytes (16-bit gradients), two exchanges a step."""
    factor = float(rng.choice([0.5, 2.0]))
    return frames | {"runs": frames["runs"].with_columns((pl.col("model_bytes") * factor).cast(pl.Int64))}


def _cut(frames: Frames, steps: int) -> Frames:
    """Without the packets after so many steps."""
    end_ns = frames["steps"].filter(pl.col("step") < steps)["end_ns"].max()
    kept = frames["step_flows"].filter((pl.col("position") == "before") | (pl.col("step") < steps))
    sums = kept.group_by("flow_id").agg(pl.col("payload_bytes").sum().alias("kept"))
    flows = frames["flows"].join(sums, on="flow_id").with_columns(payload_bytes="kept").drop("kept")
    windows = frames["flow_windows"].filter(pl.col("window_start_ns") < end_ns)
    messages = frames["messages"].filter(pl.col("first_ns") < end_ns).join(flows, on="flow_id", how="semi")
    return frames | {"step_flows": kept, "flows": flows, "flow_windows": windows, "messages": messages}


def _few_steps(frames: Frames, rng: np.random.Generator) -> Frames:
    number = int(rng.integers(1, 4))
    return _cut(frames, number) | {"steps": frames["steps"].filter(pl.col("step") < number)}


def _truncated(frames: Frames, rng: np.random.Generator) -> Frames:
    steps = frames["steps"]["step"].n_unique()
    return _cut(frames, max(round(steps * rng.uniform(0.2, 0.9)), 1))


def _with_flows(frames: Frames, number: int, low: float, high: float, rng: np.random.Generator) -> Frames:
    """More flows, each with a part between low and high of the heaviest pair's payload, evenly over the steps."""
    pairs = frames["flows"].group_by("src_ip", "dst_ip").agg(pl.col("payload_bytes").sum())
    hosts = [*sorted({host for pair in heavy(frames) for host in pair}), "192.0.2.1"]
    heaviest, steps = int(pairs["payload_bytes"].max()), frames["steps"].sort("step")  # type: ignore[arg-type]
    worker = steps["worker"].min()
    mine = steps.filter(pl.col("worker") == worker)
    found = frames
    for _ in range(number):
        src, dst = rng.choice(hosts, 2, replace=False)
        payload = round(heaviest * float(np.exp(rng.uniform(np.log(low), np.log(high)))) / max(mine.height, 1))
        flow_id = int(found["flows"]["flow_id"].max()) + 1  # type: ignore[arg-type]
        flow = found["flows"].head(1).with_columns(
            src_ip=pl.lit(str(src)), dst_ip=pl.lit(str(dst)), flow_id=pl.lit(flow_id),
            payload_bytes=pl.lit(payload * mine.height), reverse_flow_id=pl.lit(None, pl.Int64),
            retransmitted_bytes=pl.lit(0),
        )  # fmt: skip
        parts = mine.select(
            "run_id", flow_id=pl.lit(flow_id), worker="worker", position=pl.lit("during"), step="step",
            packets=pl.lit(1), wire_bytes=pl.lit(payload), payload_bytes=pl.lit(payload),
        )  # fmt: skip
        at = (mine["start_ns"] + (mine["end_ns"] - mine["start_ns"]) * rng.random()).cast(pl.Int64)
        width = int(found["flow_windows"]["window_ns"][0])
        windows = pl.DataFrame({"window_start_ns": at // width * width}).select(
            run_id=pl.lit(mine["run_id"][0]), window_start_ns="window_start_ns", window_ns=pl.lit(width),
            flow_id=pl.lit(flow_id), packets=pl.lit(1), wire_bytes=pl.lit(payload), payload_bytes=pl.lit(payload),
        )  # fmt: skip
        place = pl.int_range(mine.height)
        messages = pl.DataFrame({"first_ns": at}).sort("first_ns").select(
            run_id=pl.lit(mine["run_id"][0]), flow_id=pl.lit(flow_id), message=place, first_ns="first_ns",
            duration_ns=pl.lit(0), stream_offset=place * payload, bytes=pl.lit(payload), packets=pl.lit(1),
            end_source=pl.lit("silence"), pushed=pl.lit(True),
        )  # fmt: skip
        found = found | {
            "flows": _stacked(found["flows"], flow), "step_flows": _stacked(found["step_flows"], parts),
            "flow_windows": _stacked(found["flow_windows"], windows),
            "messages": _stacked(found["messages"], messages),
        }  # fmt: skip
    return found


def _stacked(above: pl.DataFrame, below: pl.DataFrame) -> pl.DataFrame:
    filled = below.with_columns(pl.lit(0).alias(name) for name in above.columns if name not in below.columns)
    return pl.concat([above, filled.select(above.columns).cast(dict(above.schema))])


def _extra_flow(frames: Frames, rng: np.random.Generator) -> Frames:
    return _with_flows(frames, 1, 0.02, 3, rng)


def _background(frames: Frames, rng: np.random.Generator) -> Frames:
    return _with_flows(frames, int(rng.integers(3, 9)), 0.001, 0.1, rng)


def _renamed(frames: Frames, rng: np.random.Generator) -> Frames:
    hosts = sorted({*frames["flows"]["src_ip"], *frames["flows"]["dst_ip"], *frames["hosts"]["host_ip"]})
    new = {host: f"198.51.100.{number}" for host, number in zip(hosts, rng.permutation(200), strict=False)}
    renamed = {"flows": ("src_ip", "dst_ip"), "hosts": ("host_ip",)}
    return frames | {name: frames[name].with_columns(pl.col(columns).replace(new)) for name, columns in renamed.items()}


def _swapped(frames: Frames, rng: np.random.Generator) -> Frames:
    """A tenth of the pairs that carry the exchange in steps, at least one, send to another host."""
    busy = sorted(exchanged(in_steps(frames)))
    hosts = sorted({host for pair in busy for host in pair})
    found = frames["flows"]
    for place in rng.choice(len(busy), max(round(len(busy) / 10), 1), replace=False):
        src, dst = busy[place]
        other = str(rng.choice([host for host in hosts if host not in (src, dst)] or [dst]))
        found = found.with_columns(dst_ip=pl.when(_of_pairs([(src, dst)])).then(pl.lit(other)).otherwise("dst_ip"))
    return frames | {"flows": found}


#: What happens to a run; after none of these is another name right.
Change = Callable[[Frames, np.random.Generator], Frames]
CHANGES: dict[str, Change] = {
    "none": lambda frames, _: frames, "no log": _without_log, "no model_bytes": _without_model_bytes,
    "no log, no model_bytes": _without_either, "other model_bytes": _other_model_bytes, "1 to 3 steps": _few_steps,
    "truncated": _truncated, "missing pair": _lose_pair, "missing link": _lose_link,
    "two missing links": _lose_two_links, "missing capture": _lose_capture, "missing host": _lose_host,
    "lost bytes of a pair": _lose_bytes_of_pair, "lost bytes of a host": _lose_bytes_of_host,
    "lost bytes": _lose_bytes, "extra flow": _extra_flow, "background": _background, "renamed hosts": _renamed,
}  # fmt: skip
#: What happens to real captures; after swapped pairs no name is right but pair averaging, whose pairs are random.
REAL = {
    **{name: CHANGES[name] for name in ("none", "lost bytes", "lost bytes of a host", "truncated")},
    **{name: CHANGES[name] for name in ("missing host", "missing capture")},
    "swapped pairs": _swapped,
}
FEW = ("none", "no log", "no model_bytes", "no log, no model_bytes", "1 to 3 steps")  # of what is no topology


def right_of_both(one: Names, ones: Payload, other: Names, others: Payload) -> Names:
    """What carries nine tenths of the payload; or what both run, with nine tenths of it on pairs of both."""
    whole = sum(ones.values()) + sum(others.values())
    for right, payload in ((one, ones), (other, others)):
        if sum(payload.values()) >= 0.9 * whole:
            return right
    shared = exchanged(ones) & exchanged(others)
    on_shared = sum(payload.get(pair, 0) for pair in shared for payload in (ones, others))
    return one & other if on_shared >= 0.9 * whole else frozenset()


def mixed(one: Example, other: Example, rng: np.random.Generator) -> Example:
    """Two runs at once, on the same hosts. What is right follows from their payload in steps."""
    weight = float(rng.choice([0.05, 0.3, 1.0]))
    mine = sorted({host for pair in heavy(one.frames) for host in pair})
    theirs = sorted({host for pair in heavy(other.frames) for host in pair})
    new = {host: mine[i % len(mine)] for i, host in enumerate(theirs)}
    steps = one.frames["steps"]["step"].n_unique()
    shift = int(one.frames["steps"]["start_ns"].min() - other.frames["steps"]["start_ns"].min())  # type: ignore[operator]
    base = int(one.frames["flows"]["flow_id"].max()) + 1  # type: ignore[arg-type]
    added = scaled(other.frames, pl.lit(weight))
    numbered = {name: added[name].with_columns(pl.col("flow_id") + base) for name in PER_FLOW}
    numbered["flows"] = (
        numbered["flows"]
        .with_columns(pl.col("src_ip", "dst_ip").replace(new), pl.col("reverse_flow_id") + base)
        .filter(pl.col("src_ip") != pl.col("dst_ip"))
    )
    numbered["step_flows"] = numbered["step_flows"].filter(pl.col("step").is_null() | (pl.col("step") < steps))
    numbered["flow_windows"] = numbered["flow_windows"].with_columns(pl.col("window_start_ns") + shift)
    numbered["messages"] = (
        numbered["messages"].join(numbered["flows"], on="flow_id", how="semi").with_columns(pl.col("first_ns") + shift)
    )
    frames = one.frames | {name: _stacked(one.frames[name], rows) for name, rows in numbered.items()}
    their_right = other.right if len(theirs) <= len(mine) else frozenset()  # else the new hosts make another graph
    names = right_of_both(one.right, in_steps(one.frames), their_right, in_steps(numbered))
    return Example(f"{one.name} | {other.name}", one.kind, "mixed", frames, names)


# --- the examples


def load(dataset: Path, run_id: str) -> Frames:
    return {
        name: pl.read_parquet(partition(dataset, name, run_id) / "*.parquet", hive_partitioning=False)
        for name in TABLES
    }


def captured(folders: Sequence[Path], work: Path) -> Iterator[Example]:
    """Runs of capture folders that declare a topology, or have it in truth.json."""
    for number, folder in enumerate(folders):
        out = work / f"captures-{number}"
        ddnn_traces.ingest([str(folder)], out)
        with ddnn_traces.open(out) as dataset:
            declared = dict(dataset.sql("SELECT run_id, topology FROM runs").rows())
        for run_id, word in declared.items():
            truth = folder / run_id / "truth.json"
            word = json.loads(truth.read_text())["topology"] if truth.is_file() else word
            if word:
                yield Example(
                    f"capture {number} {run_id}",
                    "capture",
                    "none",
                    load(out, run_id),
                    frozenset({WORDS.get(word, word)}),
                )


def documents(work: Path, number: int) -> list[Any]:
    """Traffic models of some captures."""
    with ddnn_traces.open(work / f"captures-{number}") as dataset:
        runs = [run for run in dataset.run_ids if "pairavg" not in run]
        return [ddnn_traces.traffic_model.fit(dataset, [run]) for run in runs[::3]]


def generated(kind: str, made: Iterator[tuple[Traffic, Names]], work: Path) -> Iterator[Example]:
    """Runs that the program generates, without those of two hosts."""
    while some := list(islice(made, 30)):
        out = work / f"{kind}-{some[0][0].run.run_id}"
        write_traffic(out, [traffic for traffic, _ in some])
        for traffic, right in some:
            yield Example(traffic.run.run_id, kind, "none", load(out, traffic.run.run_id), right)


def examples(folders: Sequence[Path], seed: int, work: Path) -> Iterator[Example]:
    """All runs with all changes."""
    rng = np.random.default_rng(seed)
    base = list(captured(folders, work))
    models = documents(work, 0) if folders else []
    base += generated("law", by_law(seed, rng), work)
    base += generated("model", by_model(models, seed, rng), work) if models else []
    base += generated("scenario", scenarios(seed), work)
    base += generated("foreign", foreign(seed, rng), work)
    for example in base:
        for change in FEW if example.kind == "foreign" else CHANGES:
            if example.kind == "scenario" and change != "none" and zlib.crc32(f"{example.name}{change}".encode()) % 4:
                continue  # they are alike
            yield _changed(example, change, seed)
        if example.kind != "foreign":
            yield mixed(example, base[rng.integers(len(base))], rng)


def released(path: Path) -> Iterator[Example]:
    """Runs of a dataset that declare a topology, in a word that ring_comparison knows or not; two hosts have none."""
    with ddnn_traces.open(path, read_only=True) as dataset:
        declared = dataset.sql(
            "SELECT run_id, declared_as, inferred_topology, agrees FROM ring_comparison JOIN topology USING (run_id) "
            "WHERE declared_topology IS NOT NULL AND hosts IS DISTINCT FROM 2 ORDER BY run_id"
        ).rows()
        for run_id, word, inferred, agrees in declared:
            frames = {name: dataset.sql(f"SELECT * FROM {name} WHERE run_id = ?", [run_id]) for name in TABLES}
            right = {WORDS.get(word, word)} if word else set()
            yield Example(run_id, "real", "none", frames, frozenset(right | ({inferred} if agrees else set())))


def of_real_captures(paths: Sequence[Path], seed: int) -> Iterator[Example]:
    """Each run with each change of REAL, and merged with another one of as many hosts."""
    rng = np.random.default_rng(seed)
    base = [example for path in paths for example in released(path)]
    for example in base:
        for change in REAL:
            yield _changed(example, change, seed, REAL)
        other = base[rng.integers(len(base))]
        yield mixed(example, other, rng)


def _changed(example: Example, change: str, seed: int, changes: Mapping[str, Change] = CHANGES) -> Example:
    draw = np.random.default_rng([seed, zlib.crc32(f"{example.name} {change}".encode())])
    right = example.right & {"pair_averaging"} if change == "swapped pairs" else example.right
    return Example(example.name, example.kind, change, changes[change](example.frames, draw), right)


# --- the query's results


def answers(found: Iterator[Example], work: Path) -> pl.DataFrame:
    """A row an example: what the query gives, and whether that is right."""
    frames, number = [], 0
    while some := list(islice(found, BATCH)):
        out, number = work / f"changed-{number}", number + 1
        about = []
        with DatasetWriter(out) as writer:
            for place, example in enumerate(some):
                run_id = f"r{place}"
                _write(writer, run_id, example.frames)
                about.append({"run_id": run_id, "name": example.name, "kind": example.kind, "change": example.change,
                              "names": sorted(example.right)})  # fmt: skip
            writer.commit({})
        with ddnn_traces.open(out) as dataset:
            frames.append(dataset.query("topology").join(pl.DataFrame(about, ABOUT), on="run_id"))
        shutil.rmtree(out)
    rows = pl.concat(frames)
    return rows.with_columns(right=pl.col("topology").is_in(pl.col("names")))


def _write(writer: DatasetWriter, run_id: str, frames: Frames) -> None:
    with writer.new_run(run_id):
        for name in schema.TABLES:
            columns = schema.table(name).arrow()
            rows = (
                frames[name].with_columns(run_id=pl.lit(run_id))
                if name in frames
                else pl.from_arrow(columns.empty_table())
            )
            writer.write(name, run_id, rows.select(columns.names).to_arrow().cast(columns).to_batches(), {})


# --- the tables


def interval(right: int, number: int) -> tuple[float, float]:
    """95% interval of a share (Wilson 1927)."""
    z = 1.96
    middle, spread = right + z**2 / 2, z * np.sqrt(right * (number - right) / number + z**2 / 4)
    return (middle - spread) / (number + z**2), (middle + spread) / (number + z**2)


def print_reliability(rows: pl.DataFrame) -> None:
    """Bins of the confidence with the share that is right, and the expected calibration error."""
    print("| confidence | n | mean confidence | right | 95% interval |\n|---|---:|---:|---:|---|")
    off = 0.0
    for low, high in pairwise(BINS):
        mine = rows.filter((pl.col("confidence") >= low) & (pl.col("confidence") < high))
        if mine.is_empty():
            continue
        number, right, mean = mine.height, int(mine["right"].sum()), float(mine["confidence"].mean())  # type: ignore[arg-type]
        bounds = interval(right, number)
        share = f"{right / number:.3f} | {bounds[0]:.3f} to {bounds[1]:.3f}"
        print(f"| {low:g} to {high:g} | {number:,} | {mean:.3f} | {share} |")
        off += abs(right - number * mean)
    print(
        f"\nexpected calibration error {off / rows.height:.3f}, {rows.height:,} runs, {rows['right'].mean():.3f} right"
    )


def print_parts(rows: pl.DataFrame, part: str) -> None:
    """The same summed up for each kind of run or change."""
    print(f"\n| {part} | n | unknown | mean confidence | right |\n|---|---:|---:|---:|---:|")
    for (name,), mine in sorted(rows.group_by(part)):
        named = mine.filter(pl.col("topology") != "unknown")
        mean, right = (named[column].mean() or 0.0 for column in ("confidence", "right"))
        print(f"| {name} | {mine.height:,} | {mine.height - named.height:,} | {mean:.3f} | {right:.3f} |")


def evidence(rows: pl.DataFrame) -> tuple[Any, list[str]]:
    """The evidence of queries/topology.sql against each topology, and the names of its weights there."""
    averaging, by_steps = pl.col("topology") == "pair_averaging", pl.col("by_steps")
    columns = {
        "unmatched": 1 - pl.col("matched_share"),
        "misplaced": pl.col("misplaced_share").fill_null(0).clip(0, 0.3),
        "without_proportions": pl.col("misplaced_share").is_null(),
        "less_volume": (-pl.col("volume_ratio").log()).clip(0, 3).fill_null(0),
        "more_volume": pl.col("volume_ratio").log().clip(0, 3).fill_null(0),
        "without_volume": pl.col("volume_ratio").is_null(),
        "idle": pl.col("idle_hosts") > 0,
        "irregular": pl.when(averaging).then(0).otherwise(pl.col("irregularity").fill_null(0).clip(0, 0.5)),
        "alike_without_steps": ~by_steps & pl.col("topology").is_in(["clique", "pair_averaging"]),
        "few_hosts": 1 / (pl.col("hosts") - 1),
    }
    return rows.select(pl.col("hosts") * 0 + 1, **columns).cast(pl.Float64).to_numpy(), ["certain", *columns]


def print_weights(rows: pl.DataFrame) -> None:
    """Weights of the logistic regression of right on the evidence, by maximum likelihood with a small penalty."""
    against, weights = evidence(rows)
    against[:, 1:] *= -1
    right = rows["right"].to_numpy().astype(float)

    def loss(guess: Any) -> float:
        odds = against @ guess
        return float(np.sum(np.logaddexp(0, odds) - right * odds) + 0.01 * np.sum(guess[1:] ** 2))

    for name, weight in zip(weights, minimize(loss, np.zeros(len(weights))).x, strict=True):
        print(f"{name} {weight:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, help="folders of capture folders")
    parser.add_argument("--seeds", nargs="*", type=int, default=[2, 3], help="those of docs/topology.md are 2 and 3")
    parser.add_argument(
        "--datasets", nargs="*", type=Path, default=[], help="datasets of captures; without folders only these"
    )
    parser.add_argument("--part", type=float, default=1.0, help="share of the runs")
    parser.add_argument("--fit", action="store_true", help="print the weights that fit these seeds (the query's: 1)")
    parser.add_argument("--rows", type=Path, help="write a row a run into this Parquet file")
    arguments = parser.parse_args()
    found = []
    for seed in arguments.seeds:
        with tempfile.TemporaryDirectory() as folder:
            draw = np.random.default_rng(seed)
            made = chain(
                examples(arguments.folders, seed, Path(folder)) if arguments.folders or not arguments.datasets else (),
                of_real_captures(arguments.datasets, seed),
            )
            some = (one for one in made if draw.random() < arguments.part)
            found.append(answers(some, Path(folder)))
    rows = pl.concat(found)
    if arguments.rows:
        rows.write_parquet(arguments.rows)
    named = rows.filter(pl.col("topology") != "unknown")
    several, two = named.filter(pl.col("hosts") > 2), named.filter(pl.col("hosts") == 2)
    if arguments.fit:
        print_weights(several)
    print_reliability(several)
    print(f"two hosts: {two.height:,} runs; unknown: {rows.height - named.height:,} runs")
    print_parts(rows, "kind")
    print_parts(rows, "change")


if __name__ == "__main__":
    main()
