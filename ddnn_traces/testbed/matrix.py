"""A matrix of runs, from a TOML file: what is trained, on which hosts and links, and how it is captured.

docs/testbed.md has the keys. A key of [[runs]] that is a list stands for a run of each of its values, so that several
lists are all combinations; [defaults] holds what the runs share.
"""

from __future__ import annotations

import csv
import itertools
import random
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ddnn_traces.errors import UsageError
from ddnn_traces.testbed.programs.background import read_flows
from ddnn_traces.testbed.programs.program_list import (
    DATA,
    LAUNCHERS,
    OPTIONS,
    PROFILES,
    PROGRAMS,
    Program,
    Sizes,
    read_profile,
)
from ddnn_traces.text import counted, is_address, is_plain_name, nearest, shown
from ddnn_traces.text_files import read_toml

#: Hosts of a run at most: each is a namespace, a link and two processes of this machine.
MOST_HOSTS = 64
_MOST_RUNS = 10_000
_MOST_RANKS = 16  # a process each
_MOST_DELAY_MS = 500  # that the probes wait for
_LEAST_LOSS_PCT, _MOST_LOSS_PCT = 0.001, 99.9  # a switch that drops all is no link


@dataclass(frozen=True)
class Link:
    """What each host's link is shaped to. rate_mbit None: not shaped. docs/testbed.md defines delay and loss.

    congestion_control: TCP's, by the kernel's name; empty for the machine's default.
    """

    rate_mbit: float | None = 1000.0
    delay_ms: float = 0.0
    loss_pct: float = 0.0
    shaper: str = "tbf"
    congestion_control: str = ""


@dataclass(frozen=True)
class Capturing:
    """What tcpdump writes. direction out: what the host sends; both: also what it receives.

    offload: the hosts hand frames of up to 64 KB to their interfaces (TSO, GSO, GRO). compress: the file is .pcap.gz.
    """

    direction: str = "out"
    snaplen: int = 100
    offload: bool = True
    compress: bool = True


@dataclass(frozen=True)
class Tolerance:
    """How far a measured link may be from what was asked for; a run beyond it is rejected."""

    rate_pct: float = 15.0
    delay_ms: float = 1.0
    delay_pct: float = 10.0


@dataclass(frozen=True)
class Background:
    """Traffic that is no training's. kind constant: payload at rate_mbit from one host to another; replay: a flow list.

    flows: its file, start_s,src,dst,bytes; as read, a path from the root.
    """

    kind: str = "constant"
    rate_mbit: float = 100.0
    protocol: str = "udp"
    src: str = "worker-1"
    dst: str = "worker-2"
    flows: str = ""


@dataclass(frozen=True)
class Kill:
    """What is killed (SIGKILL) when `step` has ended: the training process of the host `kill`, or all on that host.

    restart: all processes are started again where the others end too, or do no step for patience_s.
    """

    kill: str = "worker-2"
    step: int = 5
    what: str = "process"
    restart: bool = True
    patience_s: float = 90.0


#: What a fault makes slow, by its kind: the word of a diagnosis, and what strength is, with its range.
FAULTS: Mapping[str, tuple[str, str, tuple[float, float]]] = {
    "slow_host": ("slow_host", "ms of sleep a step", (0.1, 60_000)),
    "pause": ("slow_host", "ms of sleep in each step whose number `every` divides", (0.1, 60_000)),
    "growing": ("slow_host", "ms of sleep more in each step", (0.1, 60_000)),
    "late_start": ("slow_host", "ms of sleep in the first step", (0.1, 60_000)),
    "cpu_quota": ("slow_host", "percent of a CPU", (1, 100)),
    "slow_link": ("slow_link", "Mbit/s", (0.1, 400_000)),
    "delay": ("delay", "ms one way", (0.01, _MOST_DELAY_MS)),
    "loss": ("loss", "percent of the frames", (_LEAST_LOSS_PCT, _MOST_LOSS_PCT)),
    "background": ("background", "Mbit/s of UDP payload", (0.1, 100_000)),
    "incast": ("congestion", "senders of a burst at the same time", (1, 16)),
    "small_buffer": ("receiver", "KiB of a socket's receive buffer", (2, 65_536)),
}
#: Kinds that a program makes itself, at the start of a step; those of a whole run; those that may be of one peer only.
SLEEPS = ("slow_host", "pause", "growing", "late_start")
_WHOLE_RUN = ("late_start", "small_buffer")
_OF_A_PEER = ("slow_link", "delay", "loss", "background")


@dataclass(frozen=True)
class Fault:
    """What slows a run without killing: at one host, or on its link; with a peer only between the two.

    direction of a link: out of the host, in, or both. It lasts from the start of from_step to the end of to_step; None:
    from before the first step, or to the end. every: of pause.
    """

    kind: str
    host: str = "worker-2"
    peer: str | None = None
    direction: str = "both"
    strength: float = 0.0
    from_step: int | None = None
    to_step: int | None = None
    every: int = 5

    @property
    def diagnosis(self) -> str:
        """The word for it in runs.fault_kind, which a diagnosis has, too."""
        return FAULTS[self.kind][0]


@dataclass(frozen=True)
class Job:
    """A training program with its arguments.

    ranks: processes on each worker host, a batch each. warm_up: steps before those of the logs. name: empty, unless
    several train at the same time. profile: path of compute's, where it is not a shipped one.
    """

    program: str
    model: str = "mlp1"
    batch_size: int = 32
    ranks: int = 1
    steps: int = 20
    warm_up: int = 0
    optimizer: str = "sgd"
    pause_ms: float = 50.0
    compute: str = "real"
    seed: int = 1
    data: str = "synthetic"
    options: Mapping[str, str] = field(default_factory=dict)
    trace: list[str] = field(default_factory=list)
    name: str = ""
    profile: str = ""

    @property
    def kind(self) -> Program:
        """Its entry in the catalogue."""
        return PROGRAMS[self.program]


@dataclass(frozen=True)
class Run:
    """One run: jobs on the same hosts, their links, and the capture.

    A run that has not ended after timeout_s is rejected; one that has not after time_limit_s did not finish, which is a
    result. measure: whether its links are measured before and after the training.
    """

    name: str
    jobs: tuple[Job, ...]
    workers: int = 4
    servers: int = 0
    link: Link = Link()
    capture: Capturing = Capturing()
    tolerance: Tolerance = Tolerance()
    background: Background | None = None
    kill: Kill | None = None
    fault: Fault | None = None
    timeout_s: float = 300.0
    time_limit_s: float | None = None
    measure: bool = True

    def folder_of(self, job: Job) -> str:
        """Where in the run's folder the files of a job's program are: of the first one at the top."""
        return "" if job == self.jobs[0] else job.name

    @property
    def labels(self) -> tuple[str, ...]:
        """The hosts' labels, in the order of ranks: workers, servers, chief."""
        workers = [f"worker-{number}" for number in range(1, self.workers + 1)]
        servers = [f"ps-{number}" for number in range(1, self.servers + 1)]
        return (*workers, *servers, *(["chief-1"] if any(job.kind.chief for job in self.jobs) else []))

    @property
    def bystanders(self) -> tuple[str, ...]:
        """Labels of hosts that do not train: they send what a fault adds to a host's link."""
        if self.fault is None or self.fault.peer or self.fault.kind not in ("background", "incast"):
            return ()
        count = int(self.fault.strength) if self.fault.kind == "incast" else 1
        return tuple(f"other-{number}" for number in range(1, count + 1))


@dataclass(frozen=True)
class Machine:
    """A real host, reached by ssh. python: the framework's; tcpdump: the command that captures there."""

    ssh: str
    address: str
    interface: str
    python: str = "python3"
    tcpdump: tuple[str, ...] = ("tcpdump",)
    options: tuple[str, ...] = ()  # of ssh


@dataclass(frozen=True)
class Matrix:
    """The runs of a file, and the real hosts if it names any; without them they are namespaces of this machine."""

    runs: tuple[Run, ...]
    machines: tuple[Machine, ...] = ()
    python: Mapping[str, str] = field(default_factory=dict)


# --- keys: type, and the values that are allowed


#: Ranges of numbers and the words that a text is one of, by key; keys of other texts are not in it.
_ALLOWED: dict[str, Any] = {
    "optimizer": ("sgd",), "data": DATA,
    "program": tuple(PROGRAMS), "batch_size": (1, 1 << 20), "ranks": (1, _MOST_RANKS),
    "warm_up": (0, 1 << 20), "steps": (1, 1 << 20), "pause_ms": (0, 1e6),
    "seed": (0, 1 << 31), "shuffle": (0, 1 << 31), "workers": (1, MOST_HOSTS),
    "servers": (0, MOST_HOSTS), "repeat": (1, 1000),
    "timeout_s": (1, 1e6), "time_limit_s": (1, 1e6), "rate_mbit": (0.1, 400_000),
    "delay_ms": (0, 10_000), "loss_pct": (0, _MOST_LOSS_PCT),
    "shaper": ("tbf", "htb"), "Capturing.direction": ("out", "both"), "snaplen": (54, 262_144), "rate_pct": (0, 100),
    "delay_pct": (0, 100), "Background.kind": ("constant", "replay"), "Fault.kind": tuple(FAULTS),
    "Fault.direction": ("both", "out", "in"),
    "protocol": ("udp", "tcp"), "what": ("process", "host"), "step": (0, 1 << 20), "patience_s": (1, 1e6),
    "from_step": (0, 1 << 20), "to_step": (0, 1 << 20), "every": (1, 1 << 20),
}  # fmt: skip
_TABLES: dict[str, Any] = {"link": Link, "capture": Capturing, "tolerance": Tolerance, "background": Background}
_JOB_KEYS = {name: kind for name, kind in Job.__annotations__.items() if name not in ("name", "profile")}
_RUN_KEYS = {
    **_JOB_KEYS, "name": "str", "jobs": "list", "workers": "int", "servers": "int", "timeout_s": "float",
    "time_limit_s": "float", "measure": "bool", "variant": "str", "repeat": "int",
    **dict.fromkeys((*_TABLES, "fault"), "table"),
}  # fmt: skip
_NOT_EXPANDED = ("jobs", "trace")
#: What PyTorch records of a run beside the captures.
_TRACES = ("flight_recorder", "kineto")


def read(path: Path) -> Matrix:
    """The matrix in a file. Raises UsageError, which names the key."""
    text = read_toml(path, UsageError)
    _check_known(str(path), text, ("defaults", "runs", "hosts", "python", "shuffle"))
    entries = text.get("runs")
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        raise UsageError(f"{path}: no [[runs]]; write one for each run, or lists in one for all combinations")
    defaults = text.get("defaults", {})
    if not isinstance(defaults, dict):
        raise UsageError(f"{path}: defaults = {shown(defaults)}; it is a table, [defaults]")
    hosts = text.get("hosts", [])
    if not isinstance(hosts, list):
        raise UsageError(f"{path}: hosts = {shown(hosts)}; write [[hosts]] for each")
    runs: dict[str, Run] = {}
    for number, entry in enumerate(entries, 1):
        where = f"{path}: [[runs]] {number}"
        for cells in _expanded(where, _merged(defaults, entry)):
            for read_run in _repeated(where, cells):
                jobs = tuple(_with_profile(where, path, job) for job in read_run.jobs)
                run = _with_flows(path, replace(read_run, jobs=jobs))
                if run.name in runs:
                    raise UsageError(f"{where}: a second run is named {run.name}; give one of them a variant")
                runs[run.name] = run
                if len(runs) > _MOST_RUNS:
                    raise UsageError(f"{where}: more than {_MOST_RUNS:,} runs; make several files")
    order = list(runs.values())
    if "shuffle" in text:
        random.Random(_typed(str(path), "shuffle", text["shuffle"], "int")).shuffle(order)  # noqa: S311, no secret
    machines = tuple(_machine(f"{path}: [[hosts]] {n}", host) for n, host in enumerate(hosts, 1))
    made = tuple(_on_machines(path, run, len(machines)) if machines else run for run in order)
    return Matrix(made, machines, pythons(f"{path}: [python]", text.get("python", {})))


def _on_machines(path: Path, run: Run, machines: int) -> Run:
    """The run on real hosts, whose links are measured and not shaped."""
    if len(run.labels) > machines:
        raise UsageError(f"{path}: {run.name} needs {counted(len(run.labels), 'host')}, [[hosts]] has {machines}")
    if run.link != Link():
        raise UsageError(f"{path}: {run.name} has link = ..., but links of [[hosts]] are not shaped; remove it")
    if run.kill is not None or run.fault is not None:
        raise UsageError(f"{path}: {run.name} has a fault; these are made in network namespaces only, remove it")
    if not run.capture.offload:
        raise UsageError(f"{path}: {run.name} has offload = false; set it there by ethtool -K, and remove the key")
    return replace(run, link=Link(rate_mbit=None))


def _merged(defaults: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    """The entry over the defaults, tables key by key; the entry's keys come first, and so vary slowest."""
    own = {
        key: {**value, **{name: part for name, part in defaults[key].items() if name not in value}}
        if isinstance(value, dict) and isinstance(defaults.get(key), dict)
        else value
        for key, value in entry.items()
    }
    return own | {key: value for key, value in defaults.items() if key not in own}


def _expanded(where: str, entry: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """All combinations of the values in lists, also those in tables."""
    flat: list[tuple[tuple[str, ...], list[Any]]] = []
    for key, value in entry.items():
        if isinstance(value, dict) and key not in _NOT_EXPANDED:
            flat += [((key, inner), _several(where, inner, values)) for inner, values in value.items()]
            flat += [] if value else [((key,), [{}])]
        else:
            flat.append(((key,), [value] if key in _NOT_EXPANDED else _several(where, key, value)))
    for values in itertools.product(*(choices for _, choices in flat)):
        cells: dict[str, Any] = {}
        for (names, _), value in zip(flat, values, strict=True):
            table = cells if len(names) == 1 else cells.setdefault(names[0], {})
            table[names[-1]] = value
        yield cells


def _several(where: str, key: str, value: Any) -> list[Any]:
    if value == []:
        raise UsageError(f"{where}: {key} is an empty list; give a value")
    return value if isinstance(value, list) else [value]


def _repeated(where: str, cells: dict[str, Any]) -> Iterator[Run]:
    times = _typed(where, "repeat", cells.get("repeat", 1), "int")
    for number in range(1, times + 1):
        run = _run(where, cells, f"r{number}" if times > 1 else "")
        # repeats are of one setting, not of one sequence of random numbers
        yield replace(run, jobs=tuple(replace(job, seed=job.seed + number - 1) for job in run.jobs))


def _run(where: str, cells: Mapping[str, Any], repetition: str) -> Run:
    _check_known(where, cells, _RUN_KEYS)
    jobs = _jobs(where, cells)
    values = {
        key: _typed(where, key, cells[key], _RUN_KEYS[key])
        for key in ("workers", "servers", "timeout_s", "time_limit_s", "measure")
        if key in cells
    }
    values.setdefault("servers", max(0, *(job.kind.servers for job in jobs)))
    for job in jobs:
        try:
            workers = values.get("workers", Run.workers) * job.ranks
            job.kind.check(Sizes(workers, job.batch_size, job.ranks), job.options)
        except ValueError as error:
            raise UsageError(f"{where}: {job.program}: {error}") from error
        if values["servers"] < job.kind.servers:
            raise UsageError(f"{where}: program {job.program} needs a server; give servers = 1 or more")
        if values["servers"] and job.kind.servers < 0:
            raise UsageError(f"{where}: program {job.program} has no servers; remove servers = {values['servers']}")
    tables = {
        key: _table(f"{where}: {key}", kind, cells[key]) for key, kind in _TABLES.items() if cells.get(key) is not None
    }
    run = Run("", jobs, **values, **tables, **_fault(f"{where}: fault", cells.get("fault")))
    if len(run.labels) < 2:
        raise UsageError(f"{where}: workers = {run.workers} without a server send nothing; give two workers or more")
    if run.link.delay_ms > _MOST_DELAY_MS:
        raise UsageError(f"{where}: link: delay_ms = {run.link.delay_ms:g}; it is 0 to {_MOST_DELAY_MS}")
    if 0 < run.link.loss_pct < _LEAST_LOSS_PCT:
        raise UsageError(f"{where}: link: loss_pct = {run.link.loss_pct:g}; it is 0, or {_LEAST_LOSS_PCT:g} and more")
    if (hosts := len(run.labels) + len(run.bystanders)) > MOST_HOSTS:
        raise UsageError(f"{where}: {hosts} hosts; at most {MOST_HOSTS}")
    if run.background is not None:
        _check_background(where, run)
    if run.kill is not None:
        _check_kill(where, run)
    if run.fault is not None:
        _check_fault(f"{where}: fault", run, run.fault)
    name = cells.get("name")
    name = "-".join(filter(None, (name, repetition))) if isinstance(name, str) else name
    name = name or _name(run, str(cells.get("variant", "")), repetition)
    if not isinstance(name, str) or not is_plain_name(name):
        raise UsageError(f"{where}: name = {shown(name)} cannot be a folder's; give letters, digits and -")
    return replace(run, name=name)


def _with_profile(where: str, path: Path, job: Job) -> Job:
    name = job.compute.removeprefix("sleep:")
    if job.compute == "real" or (PROFILES / f"{name}.csv").is_file():
        return job
    profile = path.resolve().parent / name
    try:
        read_profile(str(profile))
    except ValueError as error:
        raise UsageError(f"{where}: compute = {shown(job.compute)}: {error}") from error
    return replace(job, compute=f"sleep:{profile.stem}", profile=str(profile))


def _check_background(where: str, run: Run) -> None:
    assert run.background is not None
    if run.background.kind == "replay":
        if not run.background.flows:
            raise UsageError(f"{where}: background replay needs flows = FILE, a flow list (start_s,src,dst,bytes)")
        return
    for host in (run.background.src, run.background.dst):
        if host not in run.labels:
            raise UsageError(
                f"{where}: background between hosts that include {shown(host)}; {nearest(host, run.labels)}"
            )
    if run.background.src == run.background.dst:
        raise UsageError(f"{where}: background from {run.background.src} to itself; give another src or dst")


def _fault(where: str, cells: Any) -> dict[str, Any]:
    """The table fault: what is killed, or with a kind what slows the run."""
    if cells is None:
        return {}
    if not isinstance(cells, dict) or "kind" not in cells:
        return {"kill": _table(where, Kill, cells)}
    return {"fault": _table(where, Fault, cells)}


def _check_kill(where: str, run: Run) -> None:
    assert run.kill is not None
    (job, *others) = run.jobs
    if others or job.kind.by_mpirun or job.ranks > 1:
        raise UsageError(
            f"{where}: fault of several jobs or ranks, or of a job that mpirun starts; give one other program"
        )
    if run.kill.kill not in run.labels:
        raise UsageError(f"{where}: fault kills {shown(run.kill.kill)}; {nearest(run.kill.kill, run.labels)}")
    if run.kill.step >= job.steps - 1:
        raise UsageError(f"{where}: fault after step {run.kill.step}, and steps = {job.steps}; give an earlier step")


def _check_fault(where: str, run: Run, fault: Fault) -> None:
    """Raise UsageError, which names the key, for a fault that cannot be made in the run."""
    (job, *others) = run.jobs
    _, unit, (least, most) = FAULTS[fault.kind]
    last = job.steps - 1
    if others:
        raise UsageError(f"{where} of several jobs; give one program")
    if fault.host not in run.labels:
        raise UsageError(f"{where}: host = {shown(fault.host)}; {nearest(fault.host, run.labels)}")
    if fault.peer is not None and fault.kind not in _OF_A_PEER:
        raise UsageError(f"{where}: peer of {fault.kind}; only {', '.join(_OF_A_PEER)} have one, remove it")
    if fault.peer is not None and (fault.peer not in run.labels or fault.peer == fault.host):
        others_there = [label for label in run.labels if label != fault.host]
        raise UsageError(f"{where}: peer = {shown(fault.peer)}; {nearest(fault.peer, others_there)}")
    if not least <= fault.strength <= most:
        raise UsageError(f"{where}: strength = {fault.strength:g}; of {fault.kind} it is {least:g} to {most:g} {unit}")
    if fault.kind in _WHOLE_RUN and (fault.from_step is not None or fault.to_step is not None):
        raise UsageError(f"{where}: from_step or to_step of {fault.kind}, which is of a whole run; remove them")
    begin, end = fault.from_step or 0, last if fault.to_step is None else fault.to_step
    if not begin <= end <= last:
        raise UsageError(f"{where}: from_step {begin} and to_step {end}; give steps in this order, of 0 to {last}")
    if fault.kind == "slow_link" and (run.link.rate_mbit or 0) <= fault.strength:
        raise UsageError(f"{where}: strength = {fault.strength:g} Mbit/s; give less than link.rate_mbit")
    if fault.kind in SLEEPS and job.kind.launcher not in ("torch", "nccl", "mpi"):
        raise UsageError(f"{where}: {fault.kind} in {job.program}; the programs of PyTorch and mpi sleep")
    if fault.kind == "cpu_quota" and job.kind.by_mpirun:
        raise UsageError(f"{where}: cpu_quota in {job.program}; give a program that mpirun does not start")


def _with_flows(path: Path, run: Run) -> Run:
    """The run with the whole path of its flow list, which is given as seen from the matrix, and which is checked."""
    if run.background is None or not run.background.flows:
        return run
    flows = path.resolve().parent / run.background.flows
    try:
        with flows.open() as file:
            labels = {host for flow in read_flows(file) for host in (flow.src, flow.dst)}
    except OSError as error:
        raise UsageError(
            f"{flows}: {error.strerror}; background.flows is a flow list (start_s,src,dst,bytes)"
        ) from error
    except (ValueError, csv.Error) as error:
        raise UsageError(f"{flows}: {error}") from error
    for label in sorted(labels - {*run.labels}):
        raise UsageError(f"{flows}: {shown(label)} is no host of {run.name}; {nearest(label, run.labels)}")
    return replace(run, background=replace(run.background, flows=str(flows)))


def _jobs(where: str, cells: Mapping[str, Any]) -> tuple[Job, ...]:
    shared = {key: cells[key] for key in _JOB_KEYS if key in cells}
    several = cells.get("jobs")
    if several is None:
        return (_job(where, shared, ""),)
    if not isinstance(several, list) or len(several) < 2 or not all(isinstance(job, dict) for job in several):
        raise UsageError(f"{where}: jobs is a list of two or more tables, {{ program = ... }}")
    return tuple(_job(f"{where}: job {n}", {**shared, **job}, f"job{n}") for n, job in enumerate(several, 1))


def _job(where: str, cells: Mapping[str, Any], name: str) -> Job:
    _check_known(where, cells, _JOB_KEYS)
    if "program" not in cells:
        raise UsageError(f"{where}: no program; one of {', '.join(PROGRAMS)}")
    values = {key: _typed(where, key, value, _JOB_KEYS[key]) for key, value in cells.items()}
    values["model"] = _model(where, values)
    _check_options(where, values)
    if values.get("data") == "digits" and not PROGRAMS[values["program"]].learns:
        raise UsageError(
            f"{where}: data = digits of {values['program']}; the PyTorch programs of whole models learn, remove it"
        )
    if values.get("warm_up") and not PROGRAMS[values["program"]].warms_up:
        raise UsageError(f"{where}: warm_up of {values['program']}; programs without servers warm up, remove it")
    _check_trace(where, values)
    return Job(**values, name=name)


def _model(where: str, values: Mapping[str, Any]) -> str:
    """The model's name: the program's own, that of the profile whose gradients it has, or the one that is asked for."""
    kind = PROGRAMS[values["program"]]
    compute, model = values.get("compute", "real"), kind.model or values.get("model", Job.model)
    if compute.startswith("sleep:"):
        if not kind.sleeps:
            raise UsageError(f"{where}: {values['program']} computes; remove compute = {shown(compute)}")
        return Path(compute.removeprefix("sleep:")).stem
    if compute != "real":
        raise UsageError(f"{where}: compute = {shown(compute)}; it is real, or sleep:PROFILE")
    if model not in kind.models:
        known = nearest(model, kind.models)
        if (PROFILES / f"{model}.csv").is_file():
            known = f'it is a profile: compute = "sleep:{model}"'
        raise UsageError(f"{where}: model = {shown(model)}; {known}")
    return str(model)


def _check_options(where: str, values: Mapping[str, Any]) -> None:
    """Raise UsageError for an option that the program has not, or a word that an option does not take."""
    known_options = PROGRAMS[values["program"]].known_options
    for option, value in values.get("options", {}).items():
        if option not in known_options:
            known = nearest(option, known_options) if known_options else "it has none"
            raise UsageError(f"{where}: option {shown(option)} of {values['program']}; {known}")
        allowed = OPTIONS[option]
        if not callable(allowed) and value not in allowed:
            raise UsageError(f"{where}: {option} = {shown(value)}; {nearest(value, allowed)}")


def _check_trace(where: str, values: Mapping[str, Any]) -> None:
    """Raise UsageError for a word of trace that is not known, or a program that has nothing to record by."""
    for word in values.get("trace", []):
        if word not in _TRACES:
            raise UsageError(f"{where}: trace = {shown(word)}; {nearest(str(word), _TRACES)}")
        if PROGRAMS[values["program"]].launcher not in ("torch", "nccl"):
            raise UsageError(f"{where}: trace of {values['program']}; the programs of PyTorch record, remove it")
    if values.get("trace") and values.get("ranks", 1) > 1:
        raise UsageError(f"{where}: trace of several ranks a host; give ranks = 1, or remove it")


def _table(where: str, kind: Any, cells: Any) -> Any:
    if not isinstance(cells, dict):
        raise UsageError(f"{where} = {shown(cells)}; it is a table")
    keys = kind.__annotations__
    _check_known(where, cells, keys)
    return kind(**{key: _typed(where, key, value, keys[key], kind.__name__) for key, value in cells.items()})


def _check_known(where: str, cells: Iterable[str], known: Collection[str]) -> None:
    for key in cells:
        if key not in known:
            raise UsageError(f"{where}: unknown key {shown(key)}; {nearest(key, tuple(known))}")


_TYPES: dict[str, Any] = {"list": list, "int": int, "float": float, "str": str, "bool": bool}


def _typed(where: str, key: str, value: Any, wanted: str, table: str = "") -> Any:
    """A value of the key's type and in its range."""
    wanted = "list" if wanted == "list[str]" else wanted
    if wanted == "Mapping[str, str]":
        if not isinstance(value, dict):
            raise UsageError(f"{where}: {key} = {shown(value)}; it is a table, {{ key = value }}")
        return {str(name): str(part) for name, part in value.items()}
    kind = _TYPES[wanted.removesuffix(" | None")]
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        raise UsageError(f"{where}: {key} = {shown(value)} is not of type {kind.__name__}")
    allowed = _ALLOWED.get(key, _ALLOWED.get(f"{table}.{key}"))
    if allowed is None:
        return value
    if kind is str:
        if value not in allowed:
            raise UsageError(f"{where}: {key} = {shown(value)}; {nearest(value, allowed)}")
    elif not allowed[0] <= value <= allowed[1]:
        raise UsageError(f"{where}: {key} = {shown(value)}; it is {allowed[0]:g} to {allowed[1]:g}")
    return value


#: The published scheme has one condition; the others are behind the topology.
def _conditions(link: Link) -> list[str]:
    rate = [] if link.rate_mbit in (None, 1000) else [f"{link.rate_mbit:g}mbit"]
    delay = [f"{link.delay_ms:g}ms"] if link.delay_ms else []
    return [*([f"loss_{link.loss_pct:g}"] if link.loss_pct else []), *delay, *rate] or ["normal"]


def _beside(background: Background) -> str:
    return "replay" if background.kind == "replay" else f"background{background.rate_mbit:g}{background.protocol}"


def _killed(kill: Kill) -> str:
    host = "host_" if kill.what == "host" else ""
    return f"killed_{host}{kill.kill.replace('-', '')}"


def _slowed(fault: Fault) -> str:
    peer = f"_{fault.peer}" if fault.peer else ""
    way = "" if fault.direction == "both" else f"_{fault.direction}"
    return f"{fault.kind}_{fault.host}{peer}{way}_{fault.strength:g}".replace("-", "")


def _name(run: Run, variant: str, repetition: str) -> str:
    """framework-model-optimizer-batch-backend-condition-topology-variant, the published scheme; of several jobs, which
    have no one model or topology, jobs-PROGRAM-...-condition-variant."""
    job = run.jobs[0]
    topology = job.kind.topology_with(job.options)
    condition, *conditions = _conditions(run.link)
    topology = "recdoubling" if topology == "recursive_doubling" else topology
    scheme = [job.kind.framework, job.model, job.optimizer, str(job.batch_size), job.kind.backend, condition, topology]
    parts = [
        *(scheme if len(run.jobs) == 1 else ["jobs", *(job.program for job in run.jobs), condition]), f"n{run.workers}",
        f"{job.ranks}ranks" if job.ranks > 1 else "", *conditions, run.link.congestion_control,
        f"s{run.servers}" if run.servers > 1 else "",
        "" if job.compute == "real" else "sleep", "" if job.data == "synthetic" else job.data, job.kind.variant,
        "" if run.background is None else _beside(run.background),
        "elastic" if job.kind.elastic else "", "" if run.kill is None else _killed(run.kill),
        "" if run.fault is None else _slowed(run.fault),
        "checkpoint" if "checkpoint" in job.options else "", "" if run.capture.offload else "nooffload",
        "both" if run.capture.direction == "both" else "", variant, repetition,
    ]  # fmt: skip
    return "-".join(part for part in parts if part)


def _machine(where: str, host: Any) -> Machine:
    if not isinstance(host, dict):
        raise UsageError(f"{where}: it is a table, [[hosts]]")
    _check_known(where, host, Machine.__annotations__)
    for key in ("ssh", "address", "interface"):
        if not isinstance(host.get(key), str) or not host[key]:
            raise UsageError(f"{where}: no {key}; ssh is user@host, address and interface are those that train")
    if host["ssh"].startswith("-"):
        raise UsageError(f"{where}: ssh = {shown(host['ssh'])}; it is user@host, or a name of ssh's configuration")
    if not is_address(host["address"]):
        raise UsageError(f"{where}: address = {shown(host['address'])} is no IP address")
    words = {key: _words(where, key, host[key]) for key in ("tcpdump", "options") if key in host}
    if "python" in host:
        _typed(where, "python", host["python"], "str")
    return Machine(**{**host, **words})


def _words(where: str, key: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise UsageError(f'{where}: {key} = {shown(value)}; it is a list of words, as ["/opt/bin/tcpdump"]')
    return tuple(value)


def pythons(where: str, table: Any) -> dict[str, str]:
    """Interpreters by framework. Raises UsageError, which names `where`, for another key."""
    if not isinstance(table, dict) or not all(isinstance(value, str) for value in table.values()):
        raise UsageError(f'{where} has the Python of each framework, torch = "/opt/torch/bin/python"')
    for key in table:
        if key not in LAUNCHERS:
            raise UsageError(f"{where} has {shown(key)}; {nearest(key, LAUNCHERS)}")
    return dict(table)
