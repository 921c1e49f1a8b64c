"""Conditions of links: what shapes them, what is measured, and what is said where the two differ."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from statsmodels.stats.proportion import proportion_confint
from test_runs import toy_python

from ddnn_traces import testbed
from ddnn_traces.messages import Messages
from ddnn_traces.testbed import conditions
from ddnn_traces.testbed.hosts import PROGRAMS
from ddnn_traces.testbed.matrix import Link, Tolerance
from ddnn_traces.testbed.programs import probe

WAY = {
    "from": "worker-1", "to": "worker-2", "rtt_ms": 10.2, "rate_mbit": 980.0, "datagrams": 2000,
    "lost_there": 20, "loss_there_pct": [0.4, 2.1], "lost_back": 22, "loss_back_pct": [0.5, 2.2],
}  # fmt: skip
ASKED = Link(rate_mbit=1000, delay_ms=5, loss_pct=1)


def test_what_is_as_asked_for_is_no_problem() -> None:
    assert conditions.compare(ASKED, [WAY], Tolerance()) == []


@pytest.mark.parametrize(
    ("measured", "message"),
    [
        ({"rate_mbit": 800.0}, "rate worker-1 to worker-2: 800 Mbit/s, and 1000 were asked for"),
        ({"rate_mbit": 1200.0}, "rate worker-1 to worker-2: 1200 Mbit/s"),
        ({"rtt_ms": 9.8}, "delay worker-1 to worker-2: 4.9 ms one way, and 5 were asked for"),
        ({"rtt_ms": 13.2}, "delay worker-1 to worker-2: 6.6 ms one way"),
        ({"loss_there_pct": [1.2, 3.0]}, "loss worker-1 to worker-2 (there): 20 of 2000 datagrams, 1.2 to 3%"),
        ({"loss_back_pct": [0.0, 0.7]}, "loss worker-1 to worker-2 (back): 22 of 2000 datagrams, 0 to 0.7%"),
    ],
)
def test_what_differs_is_named(measured: dict[str, Any], message: str) -> None:
    (problem,) = conditions.compare(ASKED, [WAY, WAY | measured], Tolerance())
    assert message in problem


def test_what_differs_in_a_busy_moment_is_measured_again() -> None:
    late = WAY | {"rtt_ms": 13.2}
    del late["rate_mbit"]
    probes = iter([late, {**late, "rtt_ms": 10.3}])
    again = conditions._again(late, lambda: next(probes), ASKED, Tolerance())
    assert (again["rtt_ms"], again["tries"]) == (10.3, 3)
    assert conditions._again(again, lambda: next(probes), ASKED, Tolerance())["tries"] == 1
    assert conditions._again(late, lambda: late, ASKED, Tolerance()) == late | {"tries": 3}  # and is rejected


def test_the_rate_of_a_lossy_link_is_that_of_what_was_sent() -> None:
    link = Link(rate_mbit=1000, loss_pct=10)
    lossy = WAY | {"rate_mbit": 900.0, "rtt_ms": 0.2, "loss_there_pct": [8, 12], "loss_back_pct": [8, 12]}
    assert conditions.compare(link, [lossy], Tolerance(rate_pct=1)) == []


def test_shaping() -> None:
    def shaping(link: Link, netem: bool) -> list[str]:
        return [" ".join(words) for words in conditions.shaping("e", link, netem)]

    tbf = "qdisc add dev e root handle 1: tbf rate 100mbit burst 262144 latency 50ms"
    assert shaping(Link(rate_mbit=100, delay_ms=5), netem=False) == [tbf]
    assert shaping(Link(rate_mbit=100, delay_ms=5, loss_pct=1, shaper="htb"), netem=True) == [
        "qdisc add dev e root handle 1: htb default 1",
        "class add dev e parent 1: classid 1:1 htb rate 100mbit burst 262144",
        "qdisc add dev e parent 1:1 handle 10: netem limit 100000 delay 5ms loss 1%",
    ]
    assert shaping(Link(rate_mbit=None), netem=False) == []


@pytest.mark.parametrize(("lost", "sent"), [(0, 2000), (1, 2000), (20, 2000), (2000, 2000), (7, 10)])
def test_wilsons_interval_is_that_of_statsmodels(lost: int, sent: int) -> None:
    expected = proportion_confint(lost, sent, alpha=1e-4, method="wilson")
    assert probe.wilson_pct(lost, sent) == pytest.approx([100 * bound for bound in expected], abs=1e-3)


@pytest.mark.long
def test_the_probe_over_the_loopback_interface() -> None:
    command = [sys.executable, "-m", "programs.probe", "serve", "--address", "127.0.0.1"]
    with subprocess.Popen(command, cwd=PROGRAMS.parent, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            port = int(server.stdout.readline())
            latency, rate = (probe.measure("127.0.0.1", port, what) for what in ("latency", "rate"))
        finally:
            server.kill()
    assert max(latency["lost_there"], latency["lost_back"]) < 20  # of 2,000
    assert latency["rtt_quartiles_ms"][0] <= latency["rtt_ms"] <= latency["rtt_quartiles_ms"][2]
    assert rate["rate_mbit"] > 0


def test_a_probe_without_a_server_says_so() -> None:
    command = [sys.executable, "-m", "programs.probe", "measure", "--to", "127.0.0.1", "--port", "9"]
    done = subprocess.run(command, cwd=PROGRAMS.parent, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("127.0.0.1: ")
    assert "Traceback" not in done.stderr


CONDITIONS = """
[defaults]
program = "star"
workers = 2
steps = 3
tolerance = { rate_pct = 100, delay_ms = 1000 }
[[runs]]
link = { rate_mbit = 50, delay_ms = 20, loss_pct = 5 }
[[runs]]
variant = "strict"
tolerance = { rate_pct = 0, delay_ms = 0, delay_pct = 0 }
"""


def test_frames_that_the_delay_line_lost_are_counted() -> None:
    made = {"delay_line": {"dropped": 3}}
    queues = [{"worker-1": {end: {"dropped_by_interface": n} for end in ("sent", "received")}} for n in (5, 7)]
    assert conditions.lost(made, *queues) == ["the delay line lost 7 frames; give a lower rate or a shorter delay"]
    assert conditions.lost({"delay_line": {"dropped": 0}}, queues[0], queues[0]) == []
    assert conditions.lost({"delay_line": {}}, *queues) == ["the delay line ended early; its message is above"]


def test_links_of_real_machines_are_not_compared() -> None:
    assert conditions.compare(Link(rate_mbit=None), [{**WAY, "rtt_ms": 80.0}], Tolerance()) == []


@pytest.mark.testbed
def test_links_are_as_asked_for(tmp_path: Path) -> None:
    matrix = tmp_path / "matrix.toml"
    matrix.write_text(CONDITIONS)
    lossy, strict = testbed.run(matrix, tmp_path / "out", Messages(), {"torch": toy_python(tmp_path)})
    assert lossy.outcome == "made", lossy.why
    link = tomllib.loads((tmp_path / "out" / lossy.name / "run.toml").read_text())["origin"]["link"]
    assert link["asked_for"]["delay_ms"] == 20
    assert all(way["rtt_ms"] >= 40 for way in link["measured_before"] + link["measured_after"])
    dropped = [link["queues"][when]["dropped_on_purpose"]["packets"] for when in ("before_training", "after_training")]
    assert dropped[0] < dropped[1]
    assert {"rate", "delay", "loss"} <= set(link["made_by"])
    assert strict.outcome == "rejected"  # nothing has exactly no delay
    assert "ms one way, and 0 were asked for" in strict.why
    assert json.dumps(strict.why)[1:40] in (tmp_path / "out" / "rejected" / strict.name / "run.toml").read_text()
