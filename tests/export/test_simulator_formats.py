"""The readers of simulator_formats.py refuse what the simulators' own readers refuse."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import simulator_formats as formats
from simulator_exports import chain

from ddnn_traces.export.targets import SIMULATORS

Change = Callable[[str], str]


@pytest.mark.parametrize(
    ("words", "change"),
    [
        ("undefined label", lambda text: text.replace("requires c0", "requires c9")),
        ("a rank is missing", lambda text: text.replace("num_ranks 3", "num_ranks 4")),
        ("a blank begins", lambda text: text.replace("c0: calc", " c0: calc")),
        ("recv|send", lambda text: text.replace("to 1", "from 1")),
        ("peer or tag", lambda text: text.replace("to 1", "to 3")),
        ("closing bracket", lambda text: text[:-2]),
    ],
)
@pytest.mark.long_after(2)
def test_broken_goal_is_refused(tmp_path: Path, words: str, change: Change) -> None:
    with chain(tmp_path) as dataset:
        SIMULATORS["goal"].write_run(dataset, tmp_path / "run.goal")
    text = (tmp_path / "run.goal").read_text()
    assert len(formats.goal(text)) == 3
    with pytest.raises(ValueError, match=words):
        formats.goal(change(text))


@pytest.mark.parametrize(
    ("words", "change"),
    [
        ("number of connections", lambda text: text.replace("Connections 3", "Connections 4")),
        ("no int", lambda text: text.replace("size 1000", "size 2147483648")),
        ("unknown token", lambda text: text.replace(" start", "  start")),
        ("unspecified|no target|trigger", lambda text: text.replace("trigger id 2", "trigger id 3")),
        ("no such node", lambda text: text.replace("Nodes 16", "Nodes 2")),
        ("before a trigger", lambda text: text.replace("id 2 trigger 2", "trigger 2 id 2")),
        ("unknown id", lambda text: text + "# a comment after the header\n"),
    ],
)
@pytest.mark.long_after(3)
def test_broken_matrix_is_refused(tmp_path: Path, words: str, change: Change) -> None:
    with chain(tmp_path) as dataset:
        SIMULATORS["htsim"].write_run(dataset, tmp_path / "run.cm")
    text = (tmp_path / "run.cm").read_text()
    assert len(formats.htsim(text).connections) == 3
    with pytest.raises(ValueError, match=words):
        formats.htsim(change(text))


@pytest.mark.parametrize(
    ("words", "change"),
    [
        ("8 fields", lambda text: text.replace("r;", "r,")),
        ("not the next id", lambda text: text.replace("0,0,1", "1,0,1")),
        ("start", lambda text: text.replace(",20000000,", ",200000,")),
        ("no two servers", lambda text: text.replace("0,0,1", "0,0,3")),
        ("1 fields", lambda text: text + "\n"),
    ],
)
@pytest.mark.long_after(2)
def test_broken_schedule_is_refused(tmp_path: Path, words: str, change: Change) -> None:
    with chain(tmp_path) as dataset:
        SIMULATORS["basic-sim"].write_run(dataset, tmp_path / "out")
    assert len(formats.basic_sim(tmp_path / "out")[0]) == 3
    path = tmp_path / "out" / "tcp_flow_schedule.csv"
    path.write_text(change(path.read_text()))
    with pytest.raises(ValueError, match=words):
        formats.basic_sim(tmp_path / "out")
