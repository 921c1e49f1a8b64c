"""The line of the first screen about captures says what `check` finds, not only whether files are whole."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import polars as pl
import pytest
from datasets import read_case, write_dataset

from ddnn_traces.query.checks import run_checks
from ddnn_traces.report import section as section_module
from ddnn_traces.report.chapters import steps, trust
from ddnn_traces.report.section import Results, Section, Source, Table

HOSTS = ("10.0.0.1", "10.0.0.2", "10.0.0.3")


def captures_line(
    folder: Path, captured: int, status: str = "complete", senders: int = 3
) -> tuple[str, set[str]]:  # fmt: skip
    """The headline for a run of three workers in a ring, of whose hosts so many were captured and seen to send."""
    flows: list[dict[str, Any]] = [
        {"run_id": "r", "flow_id": place, "src_ip": host, "dst_ip": HOSTS[(place + 1) % 3], "wire_bytes": 100,
         "packets": 1, "payload_bytes": 40, "first_seen_ns": 0, "last_seen_ns": 10}
        for place, host in enumerate(HOSTS[:senders])
    ]  # fmt: skip
    here = HOSTS[:captured]
    tables = {
        "runs": pl.DataFrame({"run_id": ["r"], "workers": [3]}),
        "hosts": pl.DataFrame(
            {"run_id": "r", "host_ip": host, "label": f"worker-{place}", "role": "worker"}
            for place, host in enumerate(HOSTS, 1)
        ),
        "flows": pl.DataFrame(flows),
        "captures": pl.DataFrame(
            {"run_id": "r", "capture_id": f"{host}.pcap", "vantage_ip": host, "records": 1, "status": status}
            for host in here
        ),
        "capture_ledger": pl.DataFrame(
            {"run_id": "r", "capture_id": f"{host}.pcap", "reason": "in_flows", "packets": 1, "wire_bytes": 100}
            for host in here
        ),
    }
    with write_dataset(folder, tables) as dataset:
        found = {name for name, rows in run_checks(dataset).items() if rows.num_rows}
        with Results(dataset) as results:
            [section] = trust.chapter.sections(results, only=["losses"])
    return section.headline, found


@pytest.mark.long
def test_a_host_that_was_not_captured_is_said(tmp_path: Path) -> None:
    """All files that are there are whole: that alone says nothing."""
    headline, found = captures_line(tmp_path / "whole", captured=3)
    assert "missing_worker" not in found and "missing worker" not in headline
    headline, found = captures_line(tmp_path / "missing", captured=2)
    assert "missing_worker" in found
    assert "missing worker in r" in headline
    for name in found:
        assert name.replace("_", " ") in headline
    assert "cover" not in headline  # what the third host sends and gets is in the captures of the others
    headline, _ = captures_line(tmp_path / "sent", captured=2, senders=2)
    assert "the captures of 1 run do not cover all hosts" in headline


@pytest.mark.long
def test_steps_that_a_part_of_the_hosts_shows_are_said(tmp_path: Path) -> None:
    case = Path(__file__).parents[1] / "queries" / "inferred_steps" / "hosts_without_a_capture"
    tables = read_case(case)
    with write_dataset(tmp_path / "dataset", tables) as dataset, Results(dataset) as results:
        [section] = steps.chapter.sections(results, only=["inferred-steps"])
    assert "The captures of 1 run of these do not cover all hosts" in section.headline


@pytest.mark.long
def test_steps_by_bytes_are_said_where_pauses_show_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A section called a host late in 37 of 39 steps, the next one saw 31 steps in the same run."""
    tables = read_case(Path(__file__).parents[1] / "queries" / "inferred_steps" / "four_steps")
    with write_dataset(tmp_path / "dataset", tables) as dataset, Results(dataset) as results:
        rows, said = results.rows, []
        for by_bytes in (4, 6):
            sources = rows(Source("step_sources")).with_columns(
                steps=pl.lit(by_bytes, pl.Int64), found_by=pl.lit("bytes"), steps_from=pl.lit("traffic")
            )
            monkeypatch.setattr(
                results, "rows", lambda source, new=sources: new if source.query == "step_sources" else rows(source)
            )
            [section] = steps.chapter.sections(results, only=["inferred-steps"])
            said.append(list(section.sentences))
            [table] = section.tables
            [row] = [dict(zip(table.columns, row, strict=True)) for row in table.rows if row[0] == "run-1"]
            assert (row["found by"], row["inferred"]) == ("repeated bytes", str(by_bytes))
    of_bytes = "run-1: its flows repeat their bytes in 6 steps, which are surer than 4 by pauses "
    assert said == [[], [of_bytes + "(query job_steps, --infer-steps)"]]


def test_runs_with_steps_by_bytes_count_as_runs_with_steps() -> None:
    """The page named 9 runs whose steps are inferred, one of them by repeated bytes, and this section 8."""
    score = pl.DataFrame(
        {"run_id": ["a", "b", "c"], "structured": [True, False, False], "confidence": [0.95, None, None],
         "inferred": [12, 0, 0]}
    )  # fmt: skip
    found = steps._found_by(score, pl.DataFrame({"run_id": ["b"], "steps": [10], "confidence": [1.0]}))
    assert found.rows() == [
        ("a", True, 0.95, 12, "pauses"),
        ("b", True, 1.0, 10, "repeated bytes"),
        ("c", False, None, 0, None),
    ]


@pytest.mark.long
def test_a_file_that_is_cut_short_is_said(tmp_path: Path) -> None:
    headline, _ = captures_line(tmp_path / "cut", captured=3, status="truncated")
    assert "3 of 3 capture files" in headline


def test_a_file_that_is_cut_short_is_what_a_check_finds() -> None:
    """`check` counts such files as a check of their own, so "no data check finds anything" contradicted it."""
    unchecked = pl.DataFrame(schema={"run_id": pl.String, "is_partial": pl.Boolean})
    section = cast(Section, SimpleNamespace(results=SimpleNamespace(faults={}), rows=lambda _: unchecked))
    files = pl.DataFrame({"run_id": ["r"], "status": ["truncated"]})
    assert trust._checked(section, files) == "no other data check finds anything"
    assert trust._checked(section, files[:0]) == "no data check finds anything"


def test_steps_without_a_log_are_not_none_and_the_option_that_takes_them_is_named(tmp_path: Path) -> None:
    tables = read_case(Path(__file__).parents[1] / "queries" / "inferred_steps" / "hosts_without_a_capture")
    with write_dataset(tmp_path / "d", tables) as dataset, Results(dataset) as results:
        [runs] = trust.appendix.sections(results, only=["runs"])
        sure = pl.DataFrame({"run_id": ["run-1", "b", "c"], "steps_from": ["traffic", "none", "log"]})
        rows = results.rows
        results.rows = lambda source: sure if source.query == "step_sources" else rows(source)  # type: ignore[method-assign]
        said = results.untaken_steps
    [table] = runs.tables
    assert "steps" not in table.columns and table.caption.endswith(", steps.")
    assert said.endswith("in 1 of 2 runs without one the traffic shows sure steps, which --infer-steps takes")


def test_findings_of_the_first_line_are_counted_things() -> None:
    jobs = pl.DataFrame({"run_id": ["a", "b", "c", "d"]})
    kinds = ["slow_host", "slow_host", "loss"]
    found = pl.DataFrame({"run_id": ["a", "b", "c"], "rank": [1, 1, 1], "kind": kinds, "sentence": ["W2 is slow."] * 3})
    assert steps.costliest(found, jobs, 4) == (
        "In 3 of 4 jobs a host or a link costs 5% of a step or more (2 slow hosts, 1 loss finding). "
        "The costliest, in a: W2 is slow."
    )
    assert steps.costliest(found, jobs, 3).startswith("In 3 of 3 jobs (1 more is not judged, as said below) a host")


def test_the_first_screen_has_a_finding_without_the_times_of_each_host() -> None:
    found = "late together, in 11 of 11 steps: a step of 346.6 ms loses 27 ms (8%) behind the others"
    gain = "a step gains little without one of them alone (query late_together)"
    line = f"run, job 0: W1 (by 50.6 ms), W2 (by 45.1 ms) are {found}; {gain}."
    assert steps._short(line) == f"run, job 0: W1, W2 are {found}."


def test_findings_by_chance_are_counted_beside_established_ones() -> None:
    found = pl.DataFrame({"run_id": ["a", "b", "b"], "job": [0, 0, 0], "is_established": [True, False, False]})
    assert steps.by_chance(found, found.filter("is_established")) == (
        "Not established in other jobs, as chance may explain it: 2 findings."
    )
    assert steps.by_chance(found[:1], found[:1]) == steps.by_chance(found[1:], found[:0]) == ""


def test_second_copies_are_no_loss(tmp_path: Path) -> None:
    """Where both ends have a capture, half of the packets are second copies: nothing is missing."""
    ledger = {"in_flows": 500, "duplicate_vantage": 500}
    tables = {
        "runs": pl.DataFrame({"run_id": ["r"]}),
        "capture_ledger": pl.DataFrame(
            {"run_id": "r", "capture_id": "a.pcap", "reason": reason, "packets": packets, "wire_bytes": packets}
            for reason, packets in ledger.items()
        ),
    }
    with write_dataset(tmp_path / "d", tables) as dataset, Results(dataset) as results:
        [section] = trust.appendix.sections(results, only=["ledger"])
    assert section.headline == (
        "100% of the captured packets are in flows, 50% as second copies: both ends, or several interfaces of "
        "a host, captured these, and they count once."
    )


def test_columns_of_phrases_have_a_width() -> None:
    """A column of some words was 60 px wide beside eleven others, and each row five lines high."""
    cells = [("a run with quite a long name", "ring", "10 collectives of 2 groups of hosts", "a sentence, " * 6)]
    table = Table("", ["run", "topology", "why none", "said"], cells, [], [])
    assert (table.phrases, table.long) == ({"why none"}, {"said"})
    folder = Path(section_module.__file__).parent
    assert 'class="phrase"' in (folder / "page.html").read_text()
    assert "td.phrase { min-width: 9rem; }" in (folder / "page.css").read_text()
