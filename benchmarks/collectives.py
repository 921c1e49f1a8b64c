"""How well the queries on jobs and collectives agree with what programs did, and what damaged captures do to them.

python benchmarks/collectives.py data/captures data/nccl MORE_FOLDERS

Runs whose run.toml states groups and collectives of KINDS ([[origin.jobs.groups]]); others are left out. The first
table compares them. Then the tables of two runs are put together as two jobs on the same hosts at the same time,
and runs are damaged: captures of some hosts only, of what they send only, a part of the time, lost messages, clocks
that are off by 5 ms. A collective is wrong where no job has one of its kind between these hosts. The expected
calibration error is the difference of confidence and share of right ones in ten bins, weighted by their collectives.
"""

from __future__ import annotations

import argparse
import itertools
import random
import tempfile
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl

import ddnn_traces
from ddnn_traces.store import schema
from ddnn_traces.store.layout import write_marker
from ddnn_traces.store.parquet import partition

KINDS = {
    "allreduce": "all_reduce", "allgather": "all_gather", "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all", "send": "send",
}  # fmt: skip
SURE = 0.8
STARTS = {"messages": "first_ns", "flow_windows": "window_start_ns"}  # tables of a run with times
Key = tuple[str, frozenset[str]]
Step = dict[Key, tuple[int, float]]
Frames = dict[str, pl.DataFrame]


def truth(folder: Path) -> list[Step]:
    """For each job number and bytes of the collectives of a step, by kind and hosts; none where it is not stated.

    Bytes of a ring through several ranks a host are those of a ring of hosts that sends as much between them.
    """
    about = tomllib.loads((folder / "run.toml").read_text()) if (folder / "run.toml").exists() else {}
    each = about.get("ranks_per_host", 1)
    addresses = {
        each * host["rank"] + own: host.get("ip")
        for host in about.get("hosts", [])
        if "rank" in host
        for own in range(each)
    }
    jobs = []
    for job in about.get("origin", {}).get("jobs", []):
        step: Step = defaultdict(lambda: (0, 0.0))
        for group in job.get("groups", []):
            hosts = frozenset(addresses[rank] for rank in group["ranks"])
            if len(hosts) == 1:  # nothing of it is on the wire
                continue
            ranks, is_ring = len(group["ranks"]), job.get("topology") == "ring"
            more = (1 - 1 / ranks) / (1 - 1 / len(hosts)) if is_ring and each > 1 else 1
            for one in group["collectives"]:
                key, times = (KINDS.get(one["kind"], one["kind"]), hosts), one["per_step"]
                step[key] = (step[key][0] + times, step[key][1] + times * more * one["bytes"])
        jobs.append(dict(step))
    return jobs if all(jobs) and all(key[0] in KINDS.values() for job in jobs for key in job) else []


def found(collectives: pl.DataFrame) -> list[Step]:
    """The same of the rows of query collectives of a run."""
    jobs = []
    for _, job in collectives.group_by("job", maintain_order=True):
        step: Step = defaultdict(lambda: (0, 0.0))
        for row in job.to_dicts():
            key = row["kind"], frozenset(row["hosts"].split(","))
            step[key] = (step[key][0] + 1, step[key][1] + row["tensor_bytes"])
        jobs.append(dict(step))
    return jobs


def agreement(wanted: list[Step], seen: list[Step]) -> tuple[int, int, int]:
    """Kinds between hosts that are wanted, found, and found with bytes within 3%; jobs that are most alike."""
    left, all_, kinds, sizes = list(seen), 0, 0, 0
    for job in wanted:
        all_ += len(job)
        if best := min(left, key=lambda other: len(job.keys() ^ other.keys()), default=None):
            left.remove(best)
            same = job.keys() & best.keys()
            kinds += len(same)
            sizes += sum(abs(best[key][1] / job[key][1] - 1) <= 0.03 for key in same if job[key][1])
    return all_, kinds, sizes


def frames_of(dataset: ddnn_traces.Dataset, run: str) -> Frames:
    names = ("runs", "hosts", "flows", "messages", "captures", "flow_windows")
    return {name: dataset.sql(f"FROM {name} WHERE run_id = ?", [run]) for name in names}


def asked(frames: Frames, folder: Path) -> pl.DataFrame:
    """The rows of query collectives of a run with these tables."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        for table in schema.TABLES:
            path = partition(Path(name), table, "r") / "part-0.parquet"
            path.parent.mkdir(parents=True)
            empty = pl.DataFrame(schema.table(table).arrow().empty_table())
            rows = frames.get(table, empty).with_columns(run_id=pl.lit("r"))
            rows.select(empty.columns).write_parquet(path)
        write_marker(Path(name))
        with ddnn_traces.open(name) as dataset:
            return dataset.query("collectives")


def together(one: Frames, other: Frames, apart_ms: int) -> Frames:
    """Both as one run: the middle of one's data is `apart_ms` after that of the other."""
    middle = [
        int(frames["messages"].filter(pl.col("bytes") > 1000)["first_ns"].median() or 0) for frames in (one, other)
    ]
    shift, first = middle[0] - middle[1] + apart_ms * 1_000_000, int(one["flows"]["flow_id"].max() or 0) + 1
    moved = {
        "flows": other["flows"].with_columns(pl.col("flow_id", "reverse_flow_id") + first),
    } | {
        name: other[name].with_columns(pl.col(time) + shift, pl.col("flow_id") + first) for name, time in STARTS.items()
    }
    return one | {name: pl.concat([one[name], rows]) for name, rows in moved.items()}


def of_hosts(count: int) -> Callable[[Frames, random.Random], Frames]:
    """Captures of so many hosts only (below 0: of all but so many)."""

    def damage(frames: Frames, dice: random.Random) -> Frames:
        every = sorted(set(frames["captures"]["vantage_ip"].drop_nulls()))
        kept = dice.sample(every, max(1, count if count > 0 else len(every) + count))
        flows = frames["flows"].filter(pl.col("src_ip").is_in(kept) | pl.col("dst_ip").is_in(kept))
        captures = frames["captures"].filter(pl.col("vantage_ip").is_in(kept))
        return with_flows(frames, flows) | {"captures": captures}

    return damage


def one_direction(frames: Frames, dice: random.Random) -> Frames:
    """Of one host only what it sends."""
    every = sorted(set(frames["captures"]["vantage_ip"].drop_nulls()))
    deaf = dice.choice(every)
    captures = frames["captures"].filter(pl.col("vantage_ip") != deaf)
    return with_flows(frames, frames["flows"].filter(pl.col("dst_ip") != deaf)) | {"captures": captures}


def cut(frames: Frames, dice: random.Random) -> Frames:
    """From 40 to 80% of the time."""
    times = frames["messages"]["first_ns"]
    least, most = int(times.min() or 0), int(times.max() or 0)
    length = int((most - least) * dice.uniform(0.4, 0.8))
    begin = dice.randrange(least, most - length)
    kept = {name: frames[name].filter(pl.col(time).is_between(begin, begin + length)) for name, time in STARTS.items()}
    return frames | kept


def losing(share: float) -> Callable[[Frames, random.Random], Frames]:
    """Without so many of the messages: their bytes are missing in the stream."""

    def damage(frames: Frames, dice: random.Random) -> Frames:
        kept = [dice.random() >= share for _ in range(frames["messages"].height)]
        return frames | {"messages": frames["messages"].filter(pl.Series(kept))}

    return damage


def clocks(frames: Frames, dice: random.Random) -> Frames:
    """Clocks of the senders that are off by up to 5 ms, in all that their captures have."""
    off = {host: dice.randrange(-5_000_000, 5_000_000) for host in sorted(set(frames["flows"]["src_ip"]))}
    senders = frames["flows"].select("flow_id", off=pl.col("src_ip").replace_strict(off))
    return frames | {
        name: frames[name]
        .join(senders, on="flow_id", maintain_order="left")
        .with_columns(pl.col(time) + pl.col("off"))
        .drop("off")
        for name, time in STARTS.items()
    }


def with_flows(frames: Frames, flows: pl.DataFrame) -> Frames:
    there = pl.col("flow_id").is_in(flows["flow_id"].implode())
    tables = {name: frames[name].filter(there) for name in ("messages", "flow_windows")}
    return frames | {"flows": flows} | tables


DAMAGES = {
    "as it is": lambda frames, _: frames,
    "captures of one host": of_hosts(1),
    "captures of two hosts": of_hosts(2),
    "all but one host": of_hosts(-1),
    "one host's receiving missing": one_direction,
    "40 to 80% of the time": cut,
    "1% of messages lost": losing(0.01),
    "5% of messages lost": losing(0.05),
    "clocks off by 5 ms": clocks,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--damaged", type=int, default=200)
    options = parser.parse_args()
    runs = {path.name: path for folder in options.folders for path in sorted(folder.iterdir()) if truth(path)}
    with tempfile.TemporaryDirectory() as scratch:
        ddnn_traces.ingest(list(runs.values()), Path(scratch) / "dataset")
        with ddnn_traces.open(Path(scratch) / "dataset") as dataset:
            collectives = dataset.query("collectives")
            frames = {run: frames_of(dataset, run) for run in runs}
        compare(runs, collectives)
        merge(runs, frames, collectives, options.pairs, Path(scratch))
        damage(runs, frames, options.damaged, Path(scratch))


def compare(runs: dict[str, Path], collectives: pl.DataFrame) -> None:
    print("run: jobs found of those there; kinds between hosts: there, found, bytes within 3%")
    total = [0] * 5
    for run, folder in runs.items():
        wanted, seen = truth(folder), found(collectives.filter(run_id=run))
        numbers = [len(seen), len(wanted), *agreement(wanted, seen)]
        total = [a + b for a, b in zip(total, numbers, strict=True)]
        print(f"  {run}: {numbers[0]} of {numbers[1]}; {numbers[2]}, {numbers[3]}, {numbers[4]}")
    print(f"  all: {total[0]} of {total[1]}; {total[2]}, {total[3]}, {total[4]}")


def merge(
    runs: dict[str, Path], frames: dict[str, Frames], collectives: pl.DataFrame, count: int, folder: Path
) -> None:
    dice = random.Random(1)
    alone = {run: found(collectives.filter(run_id=run)) for run in runs}
    pairs = [pair for pair in itertools.combinations(runs, 2) if all(len(alone[run]) == 1 for run in pair)]
    two = same = 0
    chosen = dice.sample(pairs, min(count, len(pairs)))
    for one, other in chosen:
        seen = found(asked(together(frames[one], frames[other], dice.randrange(-50, 50)), folder))
        two += len(seen) == 2
        wanted = [{key: number for key, (number, _) in step.items()} for step in (*alone[one], *alone[other])]
        got = [{key: number for key, (number, _) in step.items()} for step in seen]
        same += all(step in got for step in wanted) and len(got) == 2
    print(f"two runs as one: {two} of {len(chosen)} are two jobs, {same} with the collectives that each has alone")


def damage(runs: dict[str, Path], frames: dict[str, Frames], count: int, folder: Path) -> None:
    dice = random.Random(2)
    print(f"damaged: runs; collectives: printed, wrong, wrong with a confidence above {SURE}, mean confidence")
    totals: dict[str, Any] = defaultdict(Counter)
    judged: dict[str, list[tuple[float, bool]]] = {"fitted": [], "held out": []}
    for number in range(count):
        name = list(DAMAGES)[number % len(DAMAGES)]
        run = dice.choice(list(runs))
        rows: list[dict[str, Any]] = asked(DAMAGES[name](frames[run], dice), folder).to_dicts()
        there = {key for job in truth(runs[run]) for key in job}
        wrong = [row for row in rows if (row["kind"], frozenset(row["hosts"].split(","))) not in there]
        sure = sum(row["confidence"] > SURE for row in wrong)
        # the shares in queries/collectives.sql are from the even ones, without NCCL
        judged["held out" if number % 2 or "nccl" in run else "fitted"] += [
            (row["confidence"], row not in wrong) for row in rows if row["confidence"] is not None
        ]
        confidence = sum(row["confidence"] or 0 for row in rows)
        totals[name] += Counter(
            runs=1, printed=len(rows), wrong=len(wrong), sure=sure, sure_runs=sure > 0, confidence=confidence
        )
    totals["all"] = sum(totals.values(), Counter())
    for name, one in totals.items():
        print(
            f"  {name}: {one['runs']}; {one['printed']}, {one['wrong']}, {one['sure']} (in {one['sure_runs']} runs),"
            f" {one['confidence'] / max(1, one['printed']):.2f}"
        )
    for name, cases in judged.items():
        print(f"expected calibration error, {name}: {calibration_error(cases):.3f} of {len(cases)} collectives")


def calibration_error(cases: Sequence[tuple[float, bool]]) -> float:
    bins: dict[int, list[tuple[float, bool]]] = defaultdict(list)
    for case in cases:
        bins[min(9, int(10 * case[0]))].append(case)
    return sum(abs(sum(sure - right for sure, right in some)) for some in bins.values()) / max(1, len(cases))


if __name__ == "__main__":
    main()
