"""What is simulated on ns-3: keys, presets, refusals; and what is said where ns-3 is missing. None of it needs ns-3."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from ddnn_traces.errors import DdnnTracesError, MissingExtra, SimulationError, UsageError
from ddnn_traces.traffic.ns3 import process
from ddnn_traces.traffic.ns3.ns3_job import job


def test_the_preset_is_the_thesiss() -> None:
    run = job({"preset": "thesis"})
    assert (run.workers, run.profile.layers, run.bandwidth_mbit, run.delay_ms) == (8, 50, 10_000, 0.02)
    assert (run.segment_bytes, run.buffer_bytes, run.queue_disc, run.queue_limit) == (
        1380,
        32 << 20,
        "pfifo_fast",
        "1000p",
    )
    assert (run.queue, run.barrier, run.fuse_from) == ("priority", False, "last")
    assert (run.seconds, run.warm_up_s, run.cool_down_s) == (12, 2, 2)
    assert job({"preset": "thesis", "workers": 4}).workers == 4


@pytest.mark.parametrize(("ratio", "iteration_ms"), [(16, 2240), (8, 1120), (4, 560), (2, 280)])
def test_the_computation_of_a_ratio_is_that_of_table_5_3(ratio: float, iteration_ms: float) -> None:
    run = job({"preset": "fast", "compute_to_network": ratio})
    passes = run.profile.forward_ns.sum() + run.profile.backward_ns.sum()
    assert passes / 1e6 == pytest.approx(iteration_ms)
    assert run.steps * iteration_ms > 2 * 12_000, "there are more steps than fit in the time"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"topology": "tree"}, "topology = 'tree'; it must be ring"),
        ({"workers": 1}, "workers = 1"),
        ({"workers": 251}, "workers = 251; it must be 2 to 250"),
        ({"queue_disc": "red"}, "queue_disc = 'red'; it must be prio or pfifo_fast"),
        ({"queue_disc": "fq_codel"}, "queue_limit = '1500000B'; it must be in packets for fq_codel, as 1000p"),
        ({"queue_limit": "1000"}, "queue_limit = '1000'; it must be as 1000p"),
        ({"queue_limit": "0p"}, "queue_limit = '0p'"),
        ({"congestion_control": "bbr"}, "congestion_control = 'bbr'; it must be newreno or"),
        ({"training_priority": "higher"}, "training_priority = 'higher'; it must be same or lower"),
        ({"segment_bytes": 0}, "segment_bytes = 0; it must be 1 to 65,000"),
        ({"buffer_bytes": 9000}, "buffer_bytes = 9000; it must be two segments or more"),
        ({"flows_per_s": -1.0, "seconds": 1}, "flows_per_s = -1.0; it must be 0 or more"),
        ({"flows_per_s": 23}, "flows_per_s = 23; it must be given with seconds"),
        ({"seconds": 0}, "seconds = 0; it must be above 0"),
        ({"seconds": 3, "warm_up_s": 2, "cool_down_s": 1}, "warm_up_s = 2; it must be with cool_down_s less"),
        ({"header_bytes": 66}, "header_bytes = 66; it must be left out"),
        ({"min_rto_ms": 0}, "min_rto_ms = 0; it must be above 0"),
        ({"time_limit_s": 0}, "time_limit_s = 0; it must be above 0"),
        ({"preset": "slow"}, "preset = 'slow'; it must be thesis or fast"),
        ({"compute_to_network": 0}, "compute_to_network = 0; it must be above 0"),
        ({"compute_to_network": 4, "compute_ms": 900.0}, "compute_to_network: gives compute_ms"),
        ({"workers": 200, "model_bytes": 100, "layers": 4}, "workers = 200; it must be at most"),
        ({"flow_rate": 23}, "flow_rate: no such key"),
        ({"run_id": "../evil"}, "run_id = '../evil'; it must be a name that a folder can have"),
        ({"run_id": ""}, "run_id = ''; it must be a name"),
        ({"workers": [3, 4]}, "workers = [3, 4]; it must be a whole number; a list is for a sweep"),
        ({"oversubscription": 4}, "oversubscription = 4; it must be left out with one leaf"),
        ({"congestion_control": "dctcp", "queue_disc": "pfifo_fast"}, "queue_disc = 'pfifo_fast'; it must be prio for"),
        ({"congestion_control": "dctcp", "queue_disc": "fq_codel"}, "queue_disc = 'fq_codel'; it must be prio for"),
        ({"stream_mbit": 9800}, "stream_mbit = 9800; it must be 0 to 9,777, a link's rate less headers"),
        ({"stream_mbit": 5, "stream_packet_bytes": 8}, "stream_packet_bytes = 8; it must be 12 to 8,940"),
        ({"stream_mbit": 5, "stream_packet_bytes": 9000}, "stream_packet_bytes = 9000; it must be 12 to 8,940"),
        ({"stream_mbit": 5, "skip_tolerance": 0.01}, "stream_mbit = 5; it must be left out with skip_tolerance"),
        ({"skip_tolerance": 0.01, "other_jobs": 1}, "other_jobs = 1; it must be left out with skip_tolerance"),
        ({"straggler": 2, "compute_factors": [2, 1]}, "straggler: gives compute_factors, too"),
        ({"straggler": 2, "workers": "four"}, "workers = 'four'; it must be a whole number"),
        ({"segment_bytes": "large"}, "segment_bytes = 'large'; it must be a whole number"),
        ({"jobs": [{}, {}]}, "jobs: ns3 runs one job"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_line(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        job(values)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def _without(monkeypatch: pytest.MonkeyPatch, *, cppyy: bool = True, gpp: bool = True, wheel: bool = True) -> None:
    """Hide cppyy, g++ and the wheel; the system has no ns-3 either."""
    find_spec, which, distribution = importlib.util.find_spec, shutil.which, importlib.metadata.distribution

    def missing(name: str) -> Any:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: (cppyy or None) if name == "cppyy" else find_spec(name)
    )
    monkeypatch.setattr(shutil, "which", lambda name: ("g++" if gpp else None) if name == "g++" else which(name))
    monkeypatch.setattr(importlib.metadata, "distribution", distribution if wheel else missing)
    monkeypatch.setattr(process, "SYSTEM", (Path("/nowhere"), Path("/nowhere")))


def test_what_is_missing_is_said_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    _without(monkeypatch, wheel=False)
    with pytest.raises(MissingExtra, match=r"ns-3 is not installed.*pip install 'ddnn-traces\[ns3\]'"):
        process.find()
    _without(monkeypatch, cppyy=False)
    with pytest.raises(MissingExtra, match="cppyy is not installed"):
        process.find("cppyy")
    _without(monkeypatch, cppyy=False, gpp=False)
    with pytest.raises(MissingExtra, match=r"neither cppyy nor g\+\+"):
        process.find()


def _installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, profile: str) -> None:
    """A wheel of ns-3 3.44 without its libraries' content."""
    libraries = tmp_path / "ns3" / "lib64"
    (libraries / "cmake" / "ns3").mkdir(parents=True)
    (libraries / "cmake" / "ns3" / "ns3Targets.cmake").write_text(f'"__LINUX__;NS3_BUILD_PROFILE_{profile};HAVE_GSL"')
    for module in ("core", "internet", "internet-apps", "point-to-point", "point-to-point-layout"):
        (libraries / f"libns3.44-{module}.so").touch()

    class Wheel:
        def locate_file(self, name: str) -> Path:
            return tmp_path / name

    _without(monkeypatch)
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: Wheel())


def test_a_debug_build_is_refused_unless_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _installed(monkeypatch, tmp_path, "DEBUG")
    with pytest.raises(UsageError, match=r"3.44 is a debug build.*--debug-build"):
        process.find()
    assert process.find(debug=True).profile == "debug"


def test_the_build_is_named_and_only_needed_libraries_are_loaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _installed(monkeypatch, tmp_path, "RELEASE")
    found = process.find("g++")
    assert str(found) == "ns-3 3.44 (release build), model compiled by g++ -O2"
    assert [path.name for path in found.libraries] == [
        "libns3.44-core.so", "libns3.44-internet.so", "libns3.44-point-to-point.so",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "said", "kind", "message"),
    [
        (1, "In file included\ninput: fatal error: 'vector' file not found\n", MissingExtra, "header <vector> of C++"),
        (-6, 'x\naborted. cond="y", msg="queue is full", +0.1s -1 f=q\nterminate\n', SimulationError, "queue is full"),
        (1, "an all-reduce ended early: error\nmore\n", SimulationError, "code 1: an all-reduce ended early"),
        (-9, "", SimulationError, "signal 9: it said nothing"),
    ],
)  # fmt: skip
def test_a_failure_of_ns3_is_one_line(
    code: int, said: str, kind: type[DdnnTracesError], message: str,
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
) -> None:  # fmt: skip
    _installed(monkeypatch, tmp_path, "RELEASE")
    monkeypatch.setattr(process, "_run", lambda *_: (code, said))
    (tmp_path / "out").mkdir()
    with pytest.raises(kind) as caught:
        process.simulate(job({}), process.find("cppyy"), tmp_path / "out")
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_the_share_that_is_done_is_told_and_no_message() -> None:
    told: list[float] = []
    program = "import sys; print('done 0.25'); print('done'); print('done 1', flush=True); sys.exit('what(): ended')"
    code, text = process._run([sys.executable, "-c", program], dict(os.environ), told.append)
    assert (code, text, told) == (1, "what(): ended\ndone\n", [0.25, 1.0])
