"""ns-3 in a process of its own: a scenario file in, files of results out.

ns-3's state is global and its fatal errors end the process, so each simulation has one. cppyy compiles the program
(program/simulation.h) there, or g++ beforehand; both take ns-3's headers and libraries from PyPI's wheel `ns3`, g++
also those of a system's ns-3.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ddnn_traces import cache
from ddnn_traces.errors import MissingExtra, SimulationError, UsageError
from ddnn_traces.traffic.ns3.ns3_job import BACKGROUND_TOS, TCP_TYPES, TRAINING_TOS, Ns3Run
from ddnn_traces.traffic.simulator.result import SETUP_NS
from ddnn_traces.traffic.traffic import SNAPLEN, addresses_of

PROGRAM = Path(__file__).parent / "program"
#: Files of the results; summary.json is the last to be written.
SUMMARY = "summary.json"
_MODULES = ("core", "stats", "network", "bridge", "traffic-control", "internet", "point-to-point")
#: Where a system's ns-3 has its headers and libraries.
SYSTEM = Path("/usr/include"), Path("/usr/lib")
_INSTALL = "pip install 'ddnn-traces[ns3]'"
_MOST_TEXT = 300


@dataclass(frozen=True)
class Engine:
    """An ns-3 and what compiles the program. profile: release, optimized, debug, default or unknown: ns-3's build."""

    version: str
    profile: str
    include: Path
    libraries: tuple[Path, ...]
    compiler: str
    standard: str

    def __str__(self) -> str:
        how = "cppyy -O2" if self.compiler == "cppyy" else "g++ -O2"
        return f"ns-3 {self.version} ({self.profile} build), model compiled by {how}"


def find(compiler: str | None = None, debug: bool = False) -> Engine:
    """The ns-3 of the wheel, else of the system. compiler: cppyy or g++; None: g++ where it is
    installed: it compiles once, cppyy in each simulation.

    debug: whether an ns-3 built for debugging will do. Raises MissingExtra where something is not installed, UsageError
    for a debug build.
    """
    has_cppyy = importlib.util.find_spec("cppyy") is not None
    if compiler == "cppyy" and not has_cppyy:
        raise MissingExtra(f"cppyy is not installed, and compiles the model: {_INSTALL}, or --compiler g++")
    chosen = compiler or ("cppyy" if has_cppyy and not shutil.which("g++") else "g++")
    if chosen == "g++" and not shutil.which("g++"):
        raise MissingExtra(f"neither cppyy nor g++ is there to compile the model: {_INSTALL}, or apt-get install g++")
    found = _of_wheel(chosen) or _of_system(chosen)
    if found is None:
        raise MissingExtra(f"ns-3 is not installed, and this needs it: {_INSTALL}")
    if found.profile == "debug" and not debug:
        raise UsageError(
            f"{found.include}: ns-3 {found.version} is a debug build, ten times slower; --debug-build takes it"
        )
    return found


def _of_wheel(compiler: str) -> Engine | None:
    try:
        folder = Path(str(importlib.metadata.distribution("ns3").locate_file("ns3")))
    except importlib.metadata.PackageNotFoundError:
        return None
    targets = (folder / "lib64" / "cmake" / "ns3" / "ns3Targets.cmake").read_text(encoding="utf-8")
    profile = re.search(r"NS3_BUILD_PROFILE_([A-Z]+)", targets)
    name = profile.group(1).lower() if profile else "unknown"
    return _engine(folder / "include", folder / "lib64", name, compiler, "c++20")


def _of_system(compiler: str) -> Engine | None:
    """As Debian's libns3-dev has it. cppyy would need the standard that its headers were written for: g++ only."""
    headers, libraries = SYSTEM
    for include in sorted(headers.glob("ns3*")):
        for core in sorted(libraries.glob("*/libns3*-core*.so")):
            profile = core.stem.rsplit("-core", 1)[1].lstrip("-") or "unknown"
            if compiler == "g++":
                # in include/ns3.37/ns3, or as Debian has them in include/ns3, next to a string.h of ns-3 that hides C's
                above = include if (include / "ns3").is_dir() else include.parent
                return _engine(above, core.parent, profile, compiler, "c++17")
            raise MissingExtra(f"{core}: cppyy takes ns-3 from the wheel only: {_INSTALL}, or --compiler g++")
    return None


def _engine(include: Path, folder: Path, profile: str, compiler: str, standard: str) -> Engine:
    name = rf"libns3[\d.]*-({'|'.join(_MODULES)})(-(default|debug|optimized|release))?"
    libraries = [path for path in sorted(folder.glob("libns3*.so")) if re.fullmatch(name, path.stem)]
    core = next((path for path in libraries if "-core" in path.name), None)
    if core is None:
        raise MissingExtra(f"{folder}: has no library of ns-3's core; install it again: {_INSTALL}")
    # libns3.44-core.so of the wheel, libns3-core.so.37 of Debian
    version = core.name.split("-core")[0].removeprefix("libns").rstrip("-") + core.resolve().name.partition(".so")[2]
    return Engine(version, profile, include, tuple(libraries), compiler, standard)


def simulate(
    run: Ns3Run,
    engine: Engine,
    out: Path,
    captured: Sequence[int] = (),
    told: Callable[[float], None] = lambda _: None,
) -> dict[str, Any]:
    """Simulate a run, its results as files in `out`, an empty folder; return summary.json.

    captured: hosts whose links are captured, there. told: called once a second with the share that is done, 0 to 1.
    Raises SimulationError where ns-3 fails.
    """
    command, scenario = prepared(run, engine, out, captured)
    code, text = _run([*command, str(scenario), str(out)], _environment(engine), told)
    if code or not (out / SUMMARY).exists():
        raise _failure(run, code, text)
    found: dict[str, Any] = json.loads((out / SUMMARY).read_text(encoding="utf-8"))
    return found


def _run(command: Sequence[str], environment: dict[str, str], told: Callable[[float], None]) -> tuple[int, str]:
    """Its exit code, and what it said but the shares that are done."""
    said = []
    with (
        tempfile.TemporaryFile("w+", errors="replace") as errors,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, errors="replace", env=environment
        ) as process,
    ):
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if done := re.fullmatch(r"done (\S+)\n", line):
                    told(float(done[1]))
                else:
                    said.append(line)
        except BaseException:
            process.kill()
            raise
        code = process.wait()
        errors.seek(0)
        return code, errors.read() + "".join(said)


def prepared(run: Ns3Run, engine: Engine, out: Path, captured: Sequence[int] = ()) -> tuple[list[str], Path]:
    """The command that simulates a run, without its two arguments, scenario and folder of results; and the scenario.

    Raises SimulationError.
    """
    scenario = out / "scenario.txt"
    scenario.write_text(_scenario(run, captured), encoding="utf-8")
    if engine.compiler == "g++":
        return [str(_program(engine))], scenario
    words = [engine.include, PROGRAM / "simulation.h", *engine.libraries]
    return [sys.executable, str(PROGRAM / "by_cppyy.py"), *map(str, words), "--"], scenario


def _environment(engine: Engine) -> dict[str, str]:
    """cppyy reads its arguments when it is imported; ns-3 ends with this process."""
    cling = {"EXTRA_CLING_ARGS": f"-O2 -std={engine.standard}"} if engine.compiler == "cppyy" else {}
    return {**os.environ, **cling, "DDNN_TRACES_PARENT": str(os.getpid())}


def _program(engine: Engine) -> Path:
    """The program compiled by g++, kept for the next simulation."""
    folder = cache.folder("ns3")
    if folder is None:
        raise SimulationError("no folder for the compiled model; make ~/.cache writable, or give --compiler cppyy")
    sources = sorted([*PROGRAM.glob("*.h"), PROGRAM / "main.cc"])
    content = b"".join(path.read_bytes() for path in sources) + repr(engine).encode()
    program = folder / f"training-{hashlib.sha256(content).hexdigest()[:16]}"
    if not program.exists():
        with tempfile.TemporaryDirectory(dir=folder) as half:
            _compile(engine, Path(half) / "program")
            (Path(half) / "program").replace(program)
        cache.remove_older(program, "training-*")
    return program


def _compile(engine: Engine, program: Path) -> None:
    folders = {path.parent for path in engine.libraries}
    command = [
        "g++", "-O2", f"-std={engine.standard}", f"-I{engine.include}", str(PROGRAM / "main.cc"), "-o", str(program),
        *map(str, engine.libraries), *(f"-Wl,-rpath,{folder}" for folder in folders), "-Wl,--allow-shlib-undefined",
    ]  # fmt: skip
    ended = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if ended.returncode:
        raise SimulationError(f"g++ cannot compile the model, --compiler cppyy may: {_error_line(ended.stderr)}")


def _failure(run: Ns3Run, code: int, text: str) -> Exception:
    if missing := re.search(r"'(\w+)' file not found", text):
        return MissingExtra(
            f"the header <{missing.group(1)}> of C++ is missing, which ns-3 needs: apt-get install libstdc++-12-dev"
        )
    how = f"signal {-code}" if code < 0 else f"code {code}"
    return SimulationError(f"{run.run_id}: ns-3 ended with {how}: {_error_line(text)}")


def _error_line(text: str) -> str:
    """What ns-3's message says, else the line of the error, else the last line."""
    if said := re.search(r'msg="(.*)", \+', text):
        return said.group(1)[:_MOST_TEXT]
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["it said nothing"]
    return next((line for line in lines if re.search(r"error|what\(\)", line)), lines[-1])[:_MOST_TEXT]


# --- the scenario


def _scenario(run: Ns3Run, captured: Sequence[int]) -> str:
    """The scenario as program/scenario.h reads it: names, each with a value or with a list's length and values."""
    words = {
        "segment_bytes": run.segment_bytes, "buffer_bytes": run.buffer_bytes, "initial_window": run.initial_window,
        "initial_ssthresh": run.ssthresh, "sack": int(run.sack),
        "delayed_ack": run.delayed_ack, "background_min_rto_ns": round(run.rto_ms * 1e6),
        "training_min_rto_ns": round(run.training_rto_ms * 1e6), "queue_disc": run.queue_disc,
        "queue_limit": run.queue_limit, "tcp_type": TCP_TYPES[run.congestion_control], "snaplen": SNAPLEN,
        "training_tos": TRAINING_TOS[run.training_priority], "background_tos": BACKGROUND_TOS,
        "link_delay_ns": round(run.delay_ms * 1e6 / 2), "window_ns": run.window_ns, "barrier": int(run.barrier),
        "priority": int(run.queue == "priority"), "update_ns": round(run.update_ms * 1e6), "steps": run.steps,
        "end_ns": round((run.seconds or 0) * 1e9), "time_limit_s": run.time_limit_s,
        "begin_ns": run.start_ns + SETUP_NS, "workers": run.workers, "leaves": run.leaves, "spines": run.spines,
        "uplink_bit_per_s": round(run.uplink_rate * 8e9), "ecn_threshold": run.marking or "none",
        "priority_rule": run.training_priority, "high_layers": run.first_layers, "jobs": 1 + run.other_jobs,
        "job_offset_ns": round(run.other_jobs_after_ms * 1e6), "skip_tolerance": run.skip_tolerance,
        "stream_gap_ns": run.stream_gap_ns, "stream_packet_bytes": run.stream_packet_bytes,
        "collective": "ring" if run.topology == "ring" else "parameter_server", "server": run.server,
    }  # fmt: skip
    flows = run.background()
    profile = run.profile
    is_alike = not run.compute_factors and not run.compute_jitter
    factors = np.ones((1, run.workers)) if is_alike else run.factors()
    lists: dict[str, Any] = {
        "addresses": addresses_of(range(run.collective.hosts)), "labels": run.labels, "captured": captured,
        "order": run.order or range(run.workers), "phase_ns": run.phase_ns(),
        "bit_per_s": np.rint(run.rates() * 8e9), "forward_ns": profile.forward_ns, "backward_ns": profile.backward_ns,
        "has_gradient": profile.gradient_bytes > 0, "factors": factors.ravel(),
        "buffers": [value for b in run.buffers for value in (b.first, b.last, b.bytes)],
        "flows": np.stack([flows.start_ns, flows.src, flows.dst, flows.bytes], 1).ravel(),
    }  # fmt: skip
    lines = [f"word {name} {value}" for name, value in words.items()]
    lines += [f"list {name} {len(values)} {' '.join(map(_text, values))}" for name, values in lists.items()]
    return "\n".join(lines) + "\n"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else repr(float(value))
