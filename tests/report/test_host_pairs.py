"""What the report says of topology and of the kind of training, in words of a reader who knows no query."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import polars as pl
import pytest
from datasets import read_case, write_dataset

from ddnn_traces.report.chapters import host_pairs
from ddnn_traces.report.section import Results, Section

QUERIES = Path(__file__).parents[1] / "queries"


def sections(folder: Path, case: str, run: str | None = None) -> dict[str, Section]:
    """The sections topology and collectives of a query's case, of all runs or one."""
    tables = read_case(QUERIES / case)
    if run:
        tables = {name: frame.filter(run_id=run) for name, frame in tables.items()}
    with write_dataset(folder, tables) as opened, Results(opened) as results:
        found = host_pairs.chapter.sections(results, only=["topology", "collectives"])
        return {section.slug: section for section in found}


@pytest.mark.long
def test_several_patterns_are_an_answer_and_no_failure(tmp_path: Path) -> None:
    stages = sections(tmp_path / "one", "job_parallelism/sends_of_stages_and_of_a_server", "stages")["topology"]
    assert stages.headline.startswith("The traffic of the run has several patterns, which no one topology describes: ")
    assert "communicator" not in stages.headline and "parameter" not in stages.headline
    assert "groups of hosts" in stages.headline
    [table] = stages.tables
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert row["topology"] == "several patterns" and row.get("confidence", "–") == "–"
    three = sections(tmp_path / "three", "job_parallelism/sends_of_stages_and_of_a_server")["topology"]
    assert "several patterns in 1 (stages)" in three.headline


@pytest.mark.long
def test_the_kind_of_training_is_told_with_what_is_not_known(tmp_path: Path) -> None:
    server = sections(tmp_path / "server", "job_parallelism/a_server_that_sends_what_it_gets")["collectives"]
    assert server.headline.endswith(
        "The job of 4 hosts is data parallel (1 group of 4 hosts), by a guess from its traffic: what its collectives "
        "add up is not seen; a parameter server sends the same."
    )
    parts = sections(tmp_path / "parts", "job_parallelism/sends_of_stages_and_of_a_server", "parts")["collectives"]
    assert "How the job of 2 hosts is parallelised is not known (1 group of 2 hosts): sends between" in parts.headline
    three = sections(tmp_path / "three", "job_parallelism/sends_of_stages_and_of_a_server")["collectives"]
    assert "job 0 of stages (3 hosts) is pipeline parallel (2 groups of 2 hosts)." in three.headline


def test_few_runs_of_a_topology_are_named() -> None:
    topologies = pl.DataFrame({"run_id": ["d", "a", "b", "c", "e"], "topology": ["ring"] * 4 + ["star"]})
    runs = topologies.with_columns(problem=pl.lit(None, pl.String), confidence=1.0)
    assert host_pairs._shapes(runs) == "5 runs shows: 4 ring; 1 star (e)"
    assert host_pairs._shapes(runs[1:]) == "4 runs shows: 3 ring (a, b, c); 1 star (e)"


def test_a_job_that_is_not_known_is_named_with_its_topology() -> None:
    """Two servers' job was "not known", and named nowhere, beside a sure topology of its run."""
    jobs = pl.DataFrame({"run_id": ["a", "b", "c", "servers"], "job": 0, "hosts": "x,y,z"})
    kinds = jobs.select("run_id", "job", parallelism=pl.lit("data (1 group of 3 hosts)")).with_columns(
        pl.when(run_id="servers")
        .then(pl.lit("unknown (8 groups of 2 hosts)"))
        .otherwise("parallelism")
        .alias("parallelism")
    )
    rows = {
        "jobs": jobs, "job_parallelism": kinds,
        "topology": pl.DataFrame({"run_id": ["servers"], "topology": ["sharded_parameter_server"]}),
    }  # fmt: skip
    section = cast(Section, SimpleNamespace(rows=lambda source: rows[source.query]))
    assert host_pairs._parallelism(section) == (
        "Guessed from traffic: 3 jobs data parallel; 1 job not known (servers: sharded parameter server)."
    )


def test_the_runner_up_is_said_to_be_untested(tmp_path: Path) -> None:
    """ "ring, 87%, runner-up tree, 99.9%" read as if the tree were the better one."""
    section = sections(tmp_path / "ring", "topology/ring_of_4")["topology"]
    [table] = section.tables
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert " could carry " in row["runner-up"] and row["runner-up"].endswith("%")
    assert "its shape is not tested, so more is no better" in table.caption
