"""Traffic of a job that was never run, from a traffic model: as a dataset, as captures, as a list of flows."""

from __future__ import annotations

import csv
import shutil
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ddnn_traces.errors import StorageError, UsageError
from ddnn_traces.store import layout
from ddnn_traces.store.whole_files import whole_file
from ddnn_traces.text import is_plain_name
from ddnn_traces.traffic.collectives import SHAPES
from ddnn_traces.traffic.model.document import Document, check
from ddnn_traces.traffic.model.sampler import ModelledRun, ModelSampler
from ddnn_traces.traffic.synthetic.traffic import Ints, Traffic, make_traffic

#: Transfers of a run, about, beyond which memory would not hold them.
MOST_TRANSFERS = 20_000_000
MOST_WORKERS = 2000
#: A day. What is drawn around it must not pass the longest silence of the sampler, nor a run 64 bits of nanoseconds.
MOST_COMPUTE_MS = 86_400_000

FORMATS = ("dataset", "pcap", "flows")
FLOW_COLUMNS = ("flow", "src", "dst", "src_port", "dst_port", "start_ns", "end_ns", "bytes", "step", "phase", "source")


@dataclass(frozen=True)
class Job:
    """What to generate. model_bytes: S, exchanged in a step. topology, shape, servers, group_size, order: as in
    collectives.Collective; topology unknown: the pairs as the model has measured them, workers then its hosts.
    compute_ms: median silence of a worker before it communicates; None: the model's.
    """

    workers: int
    model_bytes: int
    topology: str
    steps: int
    shape: str = ""
    servers: int | None = None
    group_size: int | None = None
    order: tuple[int, ...] = ()
    compute_ms: float | None = None
    seed: int = 0
    run_id: str = "synthetic"


def traffic(document: Document, job: Job) -> Traffic:
    """Every packet of a job. Raises ModelError for a document that is none, UsageError for a job that cannot be."""
    check(document, "the model")
    return make_traffic(modelled_run(document, job), ModelSampler(document))


def modelled_run(document: Document, job: Job) -> ModelledRun:
    """The run that the job is."""
    _check(document, job)
    sources = sorted({run["run_id"] for run in document["provenance"]["runs"]})
    relative = _relative(document, job)
    compute_ms = document["computation"]["median_ms"] if job.compute_ms is None else job.compute_ms
    run = ModelledRun(
        job.run_id, job.topology, job.workers, job.model_bytes, job.steps, job.shape, job.servers, job.group_size,
        job.order, compute_ms=compute_ms, update_ms=0.0, noise=0.0, seed=job.seed,
        model=f"traffic model {zlib.crc32(repr(sources).encode()):08x}", relative=relative,
    )  # fmt: skip
    number = sum(len(round_) for round_ in run.collective.rounds(job.model_bytes)) * job.steps
    if not number:
        raise UsageError(f"{job.workers} workers of {job.topology} have nothing to send; give --workers 2 or more")
    if number > MOST_TRANSFERS:
        raise UsageError(
            f"{job.run_id}: {number:,} transfers in {job.steps} steps, more than the {MOST_TRANSFERS:,} that are made "
            "at a time; give fewer --steps or --workers"
        )
    return run


def _check(document: Document, job: Job) -> None:
    if not is_plain_name(job.run_id):
        raise UsageError(
            f"--run-id {job.run_id!r} is no plain name, and a folder gets it; give one without / and \\, without line "
            "breaks and the like, that does not begin with a dot"
        )
    if not 1 <= job.workers <= MOST_WORKERS:
        raise UsageError(f"{job.workers} workers: give 1 to {MOST_WORKERS}")
    if job.steps < 1 or not 1 <= job.model_bytes <= 10**13:
        raise UsageError("steps must be 1 or more, model_bytes from 1 to 10,000,000,000,000")
    if job.compute_ms is not None and not 0 <= job.compute_ms <= MOST_COMPUTE_MS:  # not a number, either
        raise UsageError(
            f"--compute-ms {job.compute_ms:g}: give 0 to {MOST_COMPUTE_MS:,} (a day), so that the times of a run fit "
            "into 64 bits of nanoseconds"
        )
    if job.topology not in (*SHAPES, "unknown"):
        raise UsageError(f"no topology named {job.topology}; there are {', '.join(SHAPES)} and unknown")
    _check_meaning(job)
    if document["transfer_matrix"] is not None and job.topology != "unknown":
        raise UsageError(
            "the model is of a run whose topology is unknown, so its pairs are known, and no law; give --topology "
            f"unknown and --workers {len(document['transfer_matrix'])}, or a model of other runs"
        )


def _check_meaning(job: Job) -> None:
    """Raise UsageError for what is given and means nothing to the topology."""
    meant = {
        "--shape": (job.shape, tuple(SHAPES)),
        "--servers": (job.servers, ("sharded_parameter_server",)),
        "--group-size": (job.group_size, ("binary_tree_star", "hierarchical_ring")),
    }
    for option, (given, topologies) in meant.items():
        if given and job.topology not in topologies:
            raise UsageError(f"{option} means nothing to {job.topology}; leave it out, or choose another --topology")
    if job.group_size and job.shape == "overlay":
        raise UsageError("--group-size means nothing to the shape overlay, which has one group; leave it out")


def _relative(document: Document, job: Job) -> tuple[tuple[float, ...], ...]:
    if job.topology != "unknown":
        return ()
    matrix = document["transfer_matrix"]
    if matrix is None:
        raise UsageError(
            "the model is of runs whose topology is known and has no measured pairs; give one of " + ", ".join(SHAPES)
        )
    if job.workers != len(matrix):
        raise UsageError(
            f"{job.workers} workers: the model has the pairs of {len(matrix)} hosts in an unknown topology, and no law "
            f"for another number; give --workers {len(matrix)}"
        )
    return tuple(tuple(map(float, row)) for row in matrix)


def write(document: Document, job: Job, out: Path, to: str, say: Callable[[str], None] = lambda _: None) -> Path:
    """Write a job's traffic and return where it is.

    to: dataset (new, or beside its other runs), pcap (the run folder OUT/RUN_ID, which ingest reads) or flows (CSV: one
    row a transfer, FLOW_COLUMNS). The same model, job and seed give the same bytes. Raises UsageError as `traffic`, and
    where a run of that name is there; StorageError where captures would not fit on the disk. say: is told, before
    captures are written, how many bytes they will have.
    """
    if to not in FORMATS:
        raise UsageError(f"no format named {to}; there are {', '.join(FORMATS)}")
    if to == "flows" and out.is_dir():
        raise UsageError(f"{out}: a folder; name a file for the list of flows")
    layout.refuse_inside(out)
    check(document, "the model")
    _check(document, job)
    if to == "dataset":
        from ddnn_traces.traffic.synthetic.tables import check_free, write_traffic

        check_free(out, job.run_id, replace=False)  # before the work, and again while nobody else writes there
        write_traffic(out, [traffic(document, job)], replace=False)
        return out
    if to == "pcap":
        return _write_captures(document, job, out / job.run_id, say)
    made = traffic(document, job)
    with whole_file(out) as half_written, half_written.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(FLOW_COLUMNS)
        rows.writerows(flow_list(made))
    return out


def _write_captures(document: Document, job: Job, folder: Path, say: Callable[[str], None]) -> Path:
    from ddnn_traces.traffic.synthetic.packets import folder_bytes, write_folder

    if folder.exists():
        raise UsageError(f"{folder}: is there already; choose another --out or --run-id")
    made = traffic(document, job)
    needed = folder_bytes(made)
    there = next(above for above in folder.absolute().parents if above.exists())
    free = shutil.disk_usage(there).free
    if needed > free:
        raise StorageError(
            f"{folder}: would have {needed:,} bytes, and {there} has room for {free:,}; give fewer --steps or another "
            "--out, or write it --to dataset, which takes far less"
        )
    say(f"writing {int(made.transfers.packets.sum()):,} packets, about {needed:,} bytes, to {folder}")
    return write_folder(folder, made)


def flow_list(made: Traffic) -> list[tuple[Any, ...]]:
    """The transfers with payload as rows of FLOW_COLUMNS, in the order of time.

    flow: number of the directed five-tuple. step: whose exchange the transfer is of; of all else, in which it begins by
    the sender's clock (a server's: the first worker's), empty outside of steps. phase: start_up, step, tear_down.
    source: synthetic.
    """
    t = made.transfers.take(np.flatnonzero(made.transfers.payload))
    step = _steps_of(made, t.flow, t.start_ns)
    if t.step is not None:
        step = np.where(t.step < 0, step, t.step)
    ends, addresses = made.ends, made.addresses
    ports = [
        ports for c in made.connections for ports in ((c.client_port, c.server_port), (c.server_port, c.client_port))
    ]
    rows = []
    last = t.start_ns + t.duration_ns
    columns = (t.flow, t.start_ns, last, t.payload, step)
    for flow, start, end, payload, number in zip(*(column.tolist() for column in columns), strict=True):
        src, dst = ends[flow]
        phase = "start_up" if number < 0 else "tear_down" if number >= made.run.steps else "step"
        shown = number if phase == "step" else None
        rows.append(
            (flow, addresses[src], addresses[dst], *ports[flow], start, end, payload, shown, phase, "synthetic")
        )
    return rows


def _steps_of(made: Traffic, flow: Ints, at_ns: Ints) -> Ints:
    """Step of the sender at a time; -1 before the first, the number of steps after the last."""
    sender = np.array([src for src, _ in made.ends], np.int64)[flow]
    worker = np.where(sender < made.run.workers, sender, 0)
    bounds = np.concatenate([made.times.start_ns[:1], made.times.end_ns])
    step = np.empty(len(flow), np.int64)
    for i in range(made.run.workers):
        mine = worker == i
        step[mine] = np.searchsorted(bounds[:, i], at_ns[mine], "right") - 1
    return step
