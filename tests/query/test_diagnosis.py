"""What `diagnose` and the report say beside the verdicts: other ways to lose time, doubts, why nothing can be told."""

from __future__ import annotations

import json
import re
from pathlib import Path

import duckdb
import polars as pl
import pytest
from datasets import read_case, write_dataset
from polars.testing import assert_frame_equal
from slow_rings import STEPS, always, dataset, ring
from tools import RunCommand

import ddnn_traces
from ddnn_traces.query import catalogue, diagnosis
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.report.chapters import steps, trust
from ddnn_traces.report.section import Results


@pytest.fixture(autouse=True)
def diagnosed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test diagnoses a dataset once, and writes it in each form."""
    diagnose, made = diagnosis.diagnose, dict[str, diagnosis.Diagnosis]()

    def once(dataset: Dataset) -> diagnosis.Diagnosis:
        if (where := str(dataset.path)) not in made:
            made[where] = diagnose(dataset)
        return made[where]

    monkeypatch.setattr(diagnosis, "diagnose", once)


def test_diagnose_prints_findings_and_the_rest(command: RunCommand, tmp_path: Path) -> None:
    silent = {table: frame.head(0) if table == "messages" else frame for table, frame in ring("none", 1).items()}
    silent = {table: frame.with_columns(run_id=pl.lit("none")) for table, frame in silent.items()}
    alone = {table: frame.head(0) if table == "messages" else frame for table, frame in ring("alone", 1).items()}
    alone["flows"] = alone["flows"].with_columns(payload_bytes=pl.lit("1000"))
    alone["captures"] = alone["captures"].head(1)
    half = {table: frame.with_columns(run_id=pl.lit("half")) for table, frame in alone.items()}
    half["captures"] = ring("half", 1)["captures"].head(2)
    for run in (late := ring("late", 1, always(1, 15)), even := ring("even", 2), silent):
        run["flows"] = run["flows"].with_columns(payload_bytes=pl.lit("1000"))
    with dataset(tmp_path / "dataset", late, even, silent, alone, half) as opened:
        with Results(opened) as results:
            [section] = trust.chapter.sections(results, only=["losses"])
            [delays] = steps.chapter.sections(results, only=["delays"])
        found, verdicts = ddnn_traces.diagnose(opened), opened.query("verdicts")
    done = command("diagnose", "dataset")
    assert (done.returncode, done.stderr) == (0, b"")
    said = done.stdout.decode().splitlines()
    assert said[0] == "late:"
    assert said[1].startswith("  1. worker-2 is late in 1")
    assert said[2:] == [
        "Nothing stands out in 1 job: no host and no link alone is seen to cost 5% of a step "
        "(even: 2.89 ms in 11 steps).",
        "In 1 run (alone) one host alone was captured, so no job is seen: what the others send to each other is "
        "missing. Its flows, volumes and steps are there (queries traffic_matrix, inferred_steps); topology, "
        "collectives and slow hosts need the captures of all hosts.",
        "In 1 run no job is seen, and hosts that exchange data have no capture: 2 hosts of half. Put their captures "
        "into the run's folder and ingest again.",
        "In 1 run no job is seen (none): flows must repeat their bytes in each of five steps, "
        "or of four with the longest pauses between them. Other traffic between the hosts, or a batch that changes "
        "within the run, hides steps: see queries topology and traffic_matrix, and ingest the packets of one training "
        "alone (--filter), or of one part of it (editcap -A, -B).",
    ]
    assert section.headline.endswith(said[3])
    assert delays.lists == [("Runs without a job", said[3:])]
    rows = json.loads(command("diagnose", "dataset", "--format", "json").stdout)
    assert [(row["run_id"], row["job"], row["rank"], row["kind"]) for row in rows] == [
        ("alone", None, None, "one_host_captured"),
        ("even", 0, None, "nothing"),
        ("half", None, None, "hosts_without_capture"),
        ("late", 0, 1, "slow_host"),
        ("none", None, None, "no_job"),
    ]
    assert [row["sentence"].partition(" ")[0] for row in rows] == ["One", "Nothing", "No", "worker-2", "No"]
    assert rows[2]["sentence"].startswith("No job is seen, and 2 hosts that exchange data have no capture. Put ")
    # sums of the same terms in another order: of several threads, and since diagnose stores what its queries share
    assert_frame_equal(found, pl.DataFrame(rows, found.schema), rel_tol=1e-12, abs_tol=0)
    assert_frame_equal(found.drop_nulls("rank"), verdicts, rel_tol=1e-12, abs_tol=0)


@pytest.mark.long
def test_diagnose_writes_rows_as_every_command_that_prints_them(command: RunCommand, tmp_path: Path) -> None:
    case = Path(__file__).parents[1] / "queries" / "verdicts" / "by_chance"
    tables = read_case(case)
    write_dataset(tmp_path / "dataset", tables).close()
    assert command("diagnose", "dataset", "--out", "found.csv").stdout == b""
    written = pl.read_csv(tmp_path / "found.csv")
    one = json.loads(command("diagnose", "dataset", "--format", "ndjson", "--limit", "1").stdout)
    assert written.row(0, named=True)["sentence"] == one["sentence"]
    table = command("diagnose", "dataset", "--format", "table").stdout.decode().splitlines()
    assert table[0].split() == written.columns and len(table) == 2 + written.height
    assert command("diagnose", "dataset", "--out", "found.nonsense").returncode == 2


def test_diagnose_of_a_dataset_without_runs_says_nothing(command: RunCommand, tmp_path: Path) -> None:
    write_dataset(tmp_path / "dataset", {"runs": pl.DataFrame({"run_id": ["r"]})}).close()
    [runs] = (tmp_path / "dataset" / "runs").rglob("*.parquet")
    pl.read_parquet(runs, hive_partitioning=False).clear().write_parquet(runs)
    done = command("diagnose", "dataset")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"no runs\n")
    done = command("diagnose", "dataset", "--format", "json")
    assert (json.loads(done.stdout), done.stderr) == ([], b"no rows\n")


@pytest.mark.long
def test_of_two_hosts_diagnose_says_that_none_can_be_called_slow(
    command: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One computes 80 ms longer in each step; "nothing stands out" would read as if both were alike."""
    with monkeypatch.context() as two:
        two.setattr("slow_rings.WORKERS", 2)
        two.setattr("slow_rings.ROUNDS", 2)
        run = ring("r", 1, always(1, 80))
    run["hosts"], run["captures"] = run["hosts"].head(2), run["captures"].head(2)
    with dataset(tmp_path / "dataset", run) as opened, Results(opened) as results:
        [section] = steps.chapter.sections(results, only=["delays"])
    [line] = command("diagnose", "dataset").stdout.decode().splitlines()
    assert line == section.headline
    assert line.startswith("In 1 job of two hosts (r) nobody can tell which of the two is slow: no third host ")
    [row] = json.loads(command("diagnose", "dataset", "--format", "json").stdout)
    assert (row["kind"], row["sentence"]) == (
        "two_hosts",
        line.replace("In 1 job of two hosts (r)", "In a job of two hosts"),
    )


@pytest.mark.long
def test_diagnose_tells_of_a_host_that_pauses_in_few_steps(command: RunCommand, tmp_path: Path) -> None:
    """One or two of twenty steps cost too little in most steps for a verdict."""
    pauses = {(2, 4): 300.0, (2, 9): 300.0}
    alike = {(host, 5): 300.0 for host in range(4)}
    runs = ring("r", 1, pauses), ring("once", 2, {(1, 5): 300.0}), ring("alike", 3, alike)
    with (
        dataset(tmp_path / "dataset", *runs) as opened,
        Results(opened) as results,
    ):
        [section] = steps.chapter.sections(results, only=["delays"])
        of_jobs = opened.query("jobs").with_columns(agreed_share=pl.when(run_id="r").then(0.2).otherwise(1.0))
        told = [one.run_id for one in diagnosis.paused(opened.query("long_steps"), of_jobs, opened)]
    assert sorted(told) == ["alike", "once"]  # of steps that are in doubt nothing is said
    said = command("diagnose", "dataset").stdout.decode().splitlines()
    [line] = [line for line in said if line.startswith("r, job 0: ")]
    assert re.fullmatch(
        rf"r, job 0: 2 of {STEPS - 1} steps take at least twice the median \([\d.]+ ms\), which costs \d+% of the time "
        r"behind the first step; the longest, step (4|9), takes 0\.\d+ s; "
        r"the longest wait is for worker-3 in 2 \(query long_steps\)\.", line
    )  # fmt: skip
    [once] = [line for line in said if line.startswith("once, job 0: ")]
    assert (
        f"1 of {STEPS - 1} steps takes at least" in once
        and "the longest, step 5, takes 0.3" in once
        and "the longest wait is for worker-2 in 1 (" in once
    )
    [together] = [line for line in said if line.startswith("alike, job 0: ")]
    assert "the longest wait is of all hosts alike, as for a validation, in 1 (" in together
    assert section.headline == f"Few long steps cost time in 3 jobs: {together}"
    assert len(said) == 3
    rows = json.loads(command("diagnose", "dataset", "--format", "json").stdout)
    assert {row["kind"] for row in rows} == {"long_steps"}
    assert [f"{row['run_id']}, job 0: {row['sentence']}" for row in rows] == sorted(said)


@pytest.mark.long
def test_diagnose_names_hosts_that_are_late_together(command: RunCommand, tmp_path: Path) -> None:
    """A step gains nothing without the lateness of one of them alone, so that none has a verdict."""
    with dataset(tmp_path / "dataset", ring("r", 1, always(1, 15) | always(3, 15))) as opened:
        assert opened.query("verdicts").is_empty()
        with Results(opened) as results:
            [section] = steps.chapter.sections(results, only=["delays"])
    [line] = command("diagnose", "dataset").stdout.decode().splitlines()
    short = re.sub(r" \(by [\d.]+ ms\)", "", line.partition(";")[0])
    assert section.headline == f"Several hosts are late in the same steps in 1 job: {short}."
    assert section.lists == [(steps._TOGETHER, [line])]
    assert line.startswith("r, job 0: worker-2 (") and ", worker-4 (" in line
    assert line.endswith("without one of them alone (query late_together).")


@pytest.mark.long
def test_where_all_but_one_are_late_alike_diagnose_says_that_this_one_may_do_less(tmp_path: Path) -> None:
    """Three of four hosts were 80 ms late, and nothing stood out. In the other run each host is ready first in turn."""
    late = ring("late", 1, always(0, 15) | always(2, 15) | always(3, 15))
    turns = ring("turns", 2, {(host, step): 15.0 for step in range(STEPS) for host in range(4) if host != step % 4})
    with dataset(tmp_path / "dataset", late, turns) as opened:
        found = ddnn_traces.diagnose(opened)
    [sentence] = found.filter(kind="late_together")["sentence"]
    assert sentence.startswith("worker-1, worker-3, worker-4 need longer than worker-2 in 11 of 11 steps: a step of ")
    assert "; either they are late alike, or worker-2 does less: nobody can tell from the traffic" in sentence
    assert found.filter(run_id="turns")["kind"].to_list() == ["nothing"]


@pytest.mark.long
def test_diagnose_names_runs_with_steps_and_without_a_job(command: RunCommand, tmp_path: Path) -> None:
    case = Path(__file__).parents[1] / "queries" / "inferred_steps" / "four_steps"
    tables = read_case(case)
    with write_dataset(tmp_path / "dataset", tables) as opened:
        found = opened.query("inferred_steps").filter(structured=True)
    (run,) = set(found["run_id"])
    said = command("diagnose", "dataset").stdout.decode().splitlines()
    assert said[-1] == (
        f"The traffic shows steps there in 1 run ({run}: 4 steps at confidence {found['confidence'][0]:.2f}), "
        "but no pause tells a step from its parts, as a ring's rounds, or a host only sends or gets, "
        "as in a broadcast: see queries inferred_steps and topology."
    )


@pytest.mark.long
def test_of_hosts_seen_in_one_direction_diagnose_names_a_filter(command: RunCommand, tmp_path: Path) -> None:
    """Of a capture of one port nothing said that the others' data are missing."""
    tables = read_case(Path(__file__).parents[1] / "queries" / "inferred_steps" / "four_steps")
    one_way = {"run_id": "run-1", "flow_id": 2, "src_ip": "10.0.0.1", "dst_ip": "10.0.0.3", "payload_bytes": 100}
    tables["flows"] = pl.concat([tables["flows"], pl.DataFrame([one_way])])
    captures = [{"run_id": "run-1", "capture_id": str(i), "vantage_ip": f"10.0.0.{i}", "records": 9} for i in (1, 2, 3)]
    tables["captures"] = pl.DataFrame(captures)
    write_dataset(tmp_path / "dataset", tables).close()
    [said] = [
        line for line in command("diagnose", "dataset").stdout.decode().splitlines() if " in one direction only" in line
    ]
    assert said.startswith("run-1: no job is seen. The traffic shows steps, but data of 1 host in one direction only, ")
    assert "a filter (a port, a host)" in said


@pytest.mark.long
def test_diagnose_names_captures_that_cut_tcp_headers(command: RunCommand, tmp_path: Path) -> None:
    """Of IPv6 with 64 bytes of each packet no job was seen, and a changing batch was named as the cause."""
    case = Path(__file__).parents[1] / "queries" / "cut_headers" / "ipv6_of_64_bytes"
    with write_dataset(tmp_path / "dataset", read_case(case)) as opened:
        rows = ddnn_traces.diagnose(opened)
    cut = {"all": "all 2 flows: a.pcap and b.pcap have", "some": "1 of 2 flows: b.pcap has"}
    said = command("diagnose", "dataset").stdout.decode().splitlines()
    for run, about in cut.items():
        [line] = [line for line in said if line.startswith(f"{run}: no job is seen, for the snapshot length cuts")]
        assert f"TCP headers of {about} 64 bytes of each packet" in line
        assert line.endswith("Capture with tcpdump -s 128.")
    assert {*rows.filter(kind="cut_headers")["run_id"]} == set(cut)


@pytest.mark.long
def test_diagnose_tells_of_jobs_whose_steps_are_doubtful(command: RunCommand, tmp_path: Path) -> None:
    case = Path(__file__).parents[1] / "queries" / "jobs" / "the_log_has_twice_the_steps"
    tables = read_case(case)
    write_dataset(tmp_path / "dataset", tables).close()
    [doubt] = [line for line in command("diagnose", "dataset").stdout.decode().splitlines() if "query jobs" in line]
    assert doubt.startswith("r, job 0: its flows repeat their bytes in 6 steps, the log shows 12; so ")
    rows = json.loads(command("diagnose", "dataset", "--format", "json").stdout)
    assert "Table steps has those of the log; something may recur after every few steps, as a checkpoint" in doubt
    assert rows[0]["kind"] == "doubtful_steps"  # above what is found in these steps
    assert rows[0]["sentence"].startswith("Its flows repeat their bytes in 6 steps, the log shows 12; so ")
    assert "nothing" not in {row["kind"] for row in rows}  # of steps that are in doubt


@pytest.mark.long
def test_the_headline_leaves_out_jobs_whose_steps_are_doubtful(tmp_path: Path) -> None:
    """Its log has half as many steps as have the same bytes."""
    late, even = ring("late", 1, always(1, 15)), ring("even", 2)
    times = pl.DataFrame({"step": range(6), "start_ns": range(0, 6 * 10**8, 10**8)})
    logged = times.with_columns(
        run_id=pl.lit("late"), worker=pl.lit("worker-1"), epoch=0, end_ns=pl.col("start_ns") + 10**8
    ).cast(pl.String)
    late, even = late | {"steps": logged}, even | {"steps": logged.head(0)}
    with dataset(tmp_path / "dataset", late, even) as opened, Results(opened) as results:
        assert opened.query("verdicts")["run_id"].to_list() == ["late"]
        [section] = steps.chapter.sections(results, only=["delays"])
    assert section.headline.startswith(
        "Nothing stands out in 1 job: no host and no link alone is seen to cost 5% of a step. A cause that all hosts "
        "share is not seen. What 1 job loses is doubtful, as its steps are (query jobs); the costliest, in late: "
        "worker-2 is late in"
    )
    [table] = section.tables
    assert dict(zip(table.columns, table.rows[0], strict=True))["steps in doubt"].endswith(
        " by bytes, 6 by pauses or log"
    )


def test_findings_in_doubt_stand_behind_sure_ones() -> None:
    """The table began with a finding of doubtful steps, which the sentence above it leaves to the end."""
    found = pl.DataFrame(
        {"run_id": ["a", "b", "c"], "job": 0, "rank": 1, "share_of_step": [0.4, 0.8, 0.9],
         "is_established": [True, True, False]}
    )  # fmt: skip
    doubtful = pl.DataFrame({"run_id": ["b"], "job": [0], "steps": [49], "other_steps": [25]})
    rows = steps._by_trust(found, doubtful)
    assert rows.select("run_id", "doubt").rows() == [
        ("a", None), ("b", "49 by bytes, 25 by pauses or log"), ("c", None),
    ]  # fmt: skip


@pytest.mark.long
def test_findings_by_chance_stand_behind_long_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a host that hung for 3 s in one step, the first line was that chance may explain it."""
    with dataset(tmp_path / "dataset", ring("hung", 1, {(1, 5): 300.0}), ring("late", 2, always(1, 15))) as opened:
        found = opened.query("verdicts")
        assert found["run_id"].to_list() == ["late"]
        by_chance = {"run_id": pl.lit("hung"), "is_established": False, "sentence": pl.lit("host2 may be late.")}
        both, query = pl.concat([found.with_columns(**by_chance), found]), opened.query
        monkeypatch.setattr(opened, "query", lambda name, **given: both if name == "verdicts" else query(name, **given))
        told = diagnosis.diagnose(opened)
        with Results(opened) as results:
            [section] = steps.chapter.sections(results, only=["delays"])
        monkeypatch.setattr(
            opened, "query", lambda name, **given: both[:1] if name == "verdicts" else query(name, **given)
        )
        with Results(opened) as results:
            [unsure] = steps.chapter.sections(results, only=["delays"])
    late, finding, long, hung, chance = told.lines()
    assert (late, hung, chance) == ("late:", "hung:", "  1. host2 may be late.") and "worker-2 is late" in finding
    assert long.startswith("hung, job 0: 1 of ")
    kinds = [("hung", "long_steps"), ("hung", "slow_host"), ("late", "slow_host")]
    assert [*told.rows().select("run_id", "kind").iter_rows()] == kinds
    said = f"Few long steps cost time in 1 job: {long}"
    assert unsure.headline == f"{said} Not established, as chance may explain it: 1 finding."
    assert section.headline.startswith("In 1 of 2 jobs a host or a link costs")
    assert section.headline.endswith(f"{said} Not established in other jobs, as chance may explain it: 1 finding.")


@pytest.mark.long
def test_of_pairs_that_meet_at_random_no_steps_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their hosts have no steps in common, so that none of them is long, and in none something stands out."""
    with dataset(tmp_path / "dataset", ring("gossip", 1, {(1, 5): 300.0}), ring("again", 2)) as opened:
        query = opened.query
        averaging = pl.col("run_id").is_in(["gossip", "again"])
        runs = query("jobs_of_run").with_columns(is_pair_averaging=averaging, problem=pl.lit("at random"))
        monkeypatch.setattr(
            opened, "query", lambda name, **given: runs if name == "jobs_of_run" else query(name, **given)
        )
        told = diagnosis.diagnose(opened)
        with Results(opened) as results:
            [section] = steps.chapter.sections(results, only=["delays"])
    assert told.lines() == ["again: at random.", "gossip: at random."]
    assert section.headline == ("In 2 jobs pairs of hosts may meet at random: no steps, no delays (query jobs_of_run).")
    assert section.lists == []


@pytest.mark.long
def test_findings_by_chance_are_listed_and_no_headline(command: RunCommand, tmp_path: Path) -> None:
    case = Path(__file__).parents[1] / "queries" / "verdicts" / "by_chance"
    tables = read_case(case)
    with write_dataset(tmp_path / "dataset", tables) as opened, Results(opened) as results:
        [section] = steps.chapter.sections(results, only=["delays"])
    assert section.headline == "Nothing is established in 1 job: chance may explain what looks slow (1 finding)."
    [table] = section.tables
    assert "not established" in table.rows[0][table.columns.index("finding")]
    [_, said] = command("diagnose", "dataset").stdout.decode().splitlines()[:2]
    assert "not established" in said and "Confidence" not in said


@pytest.mark.long
def test_diagnose_and_the_report_name_runs_that_hold_several_trainings(command: RunCommand, tmp_path: Path) -> None:
    case = Path(__file__).parents[1] / "queries" / "jobs_of_run" / "two_rings"
    tables = read_case(case)
    with write_dataset(tmp_path / "dataset", tables) as opened, Results(opened) as results:
        [section] = trust.chapter.sections(results, only=["losses"])
    assert "several jobs are in the captures of 3 runs (apart, same, then)" in section.headline
    said = command("diagnose", "dataset").stdout.decode().splitlines()
    assert [line.partition(":")[0] for line in said if " are in its captures" in line] == ["apart", "same", "then"]
    at = next(place for place, line in enumerate(said) if line.startswith("apart: 2 trainings"))
    assert said[at + 1] == "  job 0: --filter 'host 10.0.0.1 or 10.0.0.2 or 10.0.0.3'"
    rows = [
        row for row in json.loads(command("diagnose", "dataset", "--format", "json").stdout) if row["run_id"] == "apart"
    ]
    assert [(row["job"], row["kind"]) for row in rows[:2]] == [(None, "several_jobs"), (0, "job_filter")]
    assert rows[1]["sentence"] == "--filter 'host 10.0.0.1 or 10.0.0.2 or 10.0.0.3'"


@pytest.mark.long
def test_a_training_that_was_interrupted_is_not_taken_for_several(command: RunCommand, tmp_path: Path) -> None:
    tables = read_case(Path(__file__).parents[1] / "queries" / "interruptions" / "a_ring_that_is_started_again")
    with write_dataset(tmp_path / "dataset", tables) as opened, Results(opened) as results:
        [section] = steps.chapter.sections(results, only=["delays"])
    said = command("diagnose", "dataset").stdout.decode().splitlines()
    told = [line for line in said if line.startswith(("killed, job 0: ", "twice, job 0: "))]
    assert "within a step" in told[0] and "follows" in told[1]
    assert ("Trainings that stop and go on", told) in section.lists and told[0] in section.headline
    # only where it may be another training that is told apart
    assert [line.partition(":")[0] for line in said if " are in its captures" in line] == ["twice"]


@pytest.mark.parametrize(
    ("pauses", "logged", "agreed"),
    [(40, None, 1), (33, None, 1), (27, None, 1), (26, None, 26 / 40), (42, None, 1), (45, None, 40 / 45),
     (20, None, 0.5), (33, 40, 1), (40, 33, 33 / 40), (0, None, 1)],
)  # fmt: skip
def test_pauses_that_miss_some_steps_put_none_in_doubt(pauses: int, logged: int | None, agreed: float) -> None:
    """Of 40 steps of a job: a wrong unit of bytes is half a step or two, so pauses that show 33 have missed some."""
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE job_periods AS "
            "SELECT 'r' AS run_id, 0 AS job, 40 AS steps, 1.0 AS steady_share, 1.0 AS seen_share"
        )
        connection.execute(
            "CREATE TABLE logged_steps AS SELECT 'r' AS run_id, $1 AS steps WHERE $1 IS NOT NULL", [logged]
        )
        connection.execute(
            "CREATE MACRO inferred_steps() AS TABLE SELECT 'r' AS run_id, s > 0 AS structured, step FROM "
            f"(SELECT {pauses} AS s, unnest(range(greatest(s, 1))) AS step)"
        )
        (row,) = connection.sql(catalogue.find("jobs").sql).pl().rows(named=True)
    assert row["agreed_share"] == pytest.approx(agreed) and row["confidence"] == pytest.approx(agreed)
    others = logged or pauses or None
    assert row["has_same_steps"] == (None if others is None else abs(40 - others) <= 2)


@pytest.mark.long
def test_clocks_that_differ_are_said_where_times_of_hosts_are_compared(command: RunCommand, tmp_path: Path) -> None:
    """A host's lateness and cost were given with confidence 1.00, although its clock was known to be off."""
    run, quiet, near = ring("r", 1, always(1, 15)), ring("quiet", 2), ring("near", 3, always(1, 15))
    for of_run, offsets in (run, [0, 0, 50, -50]), (quiet, [0, 0, 0, -30]), (near, [0, 0, 2, -2]):
        of_run["captures"] = of_run["captures"].with_columns(
            clock_offset_ns=pl.Series([str(offset * 1_000_000) for offset in offsets]),
            clock_offset_uncertainty_ns=pl.lit("2000"),
            clock_reference_ip=pl.lit("10.0.0.1"),
        )
        of_run["flow_windows"] = of_run["flow_windows"].head(0)  # answers, whose times would have to differ, too
    with dataset(tmp_path / "dataset", run, quiet, near) as opened:
        with Results(opened) as results:
            [section] = steps.chapter.sections(results, only=["delays"])
        [note, other] = opened.remarks("critical_path", {})
        assert opened.remarks("edge_times", {}) == []
    said = command("diagnose", "dataset").stdout.decode().splitlines()
    sentence = (
        "The clocks of worker-3 and worker-4 differ by 100 ms (check host_clock): times between hosts are wrong by "
        "up to that, and so may be which host is late, and what it costs. Shift the captures (editcap -t -0.05 for "
        "worker-3, editcap -t 0.05 for worker-4) and ingest them again."
    )
    assert said[:2] == ["near:", said[1]] and said[1].endswith("Confidence 1.00.")
    assert said[2:4] == ["r:", f"  {sentence}"]
    assert said[4].startswith("  1. worker-2 is late")
    assert said[4].endswith("; not established: clocks of the hosts differ by half of this and more.")
    assert said[5].startswith(
        "Nothing stands out in 1 job: no host and no link alone is seen to cost 5% of a step (quiet: "
    )
    assert said[6].startswith("quiet: The clocks of worker-1 and worker-4 differ by 30 ms ") and len(said) == 7
    assert "(editcap -t 0.03 for worker-4)" in said[6]
    assert other == f"run r: {sentence}" and note == f"run {said[6]}"
    assert section.lists[-1] == ("Clocks that differ", [said[6], f"r: {sentence}"])
    rows = json.loads(command("diagnose", "dataset", "--format", "json").stdout)
    assert [(row["run_id"], row["kind"]) for row in rows] == [
        *(("near", "slow_host"), ("quiet", "clocks_differ"), ("quiet", "nothing")),
        *(("r", "clocks_differ"), ("r", "slow_host")),
    ]


@pytest.mark.long
def test_a_clock_takes_its_part_of_a_finding_s_confidence(tmp_path: Path) -> None:
    """A host is 15 ms late, the clock of another one 6 ms behind: 12 ms of the cost may be the clock's."""
    run = ring("r", 1, always(1, 15))
    run["captures"] = run["captures"].with_columns(
        clock_offset_ns=pl.Series(["0", "0", "0", "-6000000"]),
        clock_offset_uncertainty_ns=pl.lit("2000"),
        clock_reference_ip=pl.lit("10.0.0.1"),
    )
    run["flow_windows"] = run["flow_windows"].head(0)  # as above
    with dataset(tmp_path / "dataset", run) as opened:
        [row] = opened.query("verdicts").rows(named=True)
    assert row["is_established"] and row["host_ip"] == "10.0.0.2" and row["cost_ms"] == pytest.approx(15, abs=1)
    part = 1 - 12 / row["cost_ms"]
    assert row["confidence"] == pytest.approx(row["explained_share"] * (1 - row["p_value"]) * part)


def test_pairs_that_meet_at_random_are_not_advised_to_be_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one training by pair averaging two jobs are seen, since its hosts have no common steps."""
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE job_periods AS FROM (VALUES ('gossip', 0, 'a,b'), ('gossip', 1, 'b,c'), ('rings', 0, 'a,b'), "
            "('rings', 1, 'a,b'), ('apart', 0, 'a,b'), ('apart', 1, 'c,d')) AS t(run_id, job, hosts)"
        )
        connection.execute("CREATE TABLE job_steps AS SELECT run_id, job, 0 AS start_ns, 9 AS end_ns FROM job_periods")
        connection.execute("CREATE TABLE events (run_id VARCHAR, kind VARCHAR)")
        connection.execute(
            "CREATE TABLE topology_matches AS FROM (VALUES ('gossip', 'pair_averaging'), ('rings', 'ring'), "
            "('apart', 'pair_averaging')) AS t(run_id, topology)"
        )
        rows = connection.sql(catalogue.find("jobs_of_run").sql).pl()
    assert dict(rows.select("run_id", "is_pair_averaging").iter_rows()) == {
        "apart": False, "gossip": True, "rings": False,
    }  # fmt: skip
    problems = dict(rows.select("run_id", "problem").iter_rows())
    assert "one training in which pairs of hosts meet at random" in problems["gossip"]
    assert {run for run, problem in problems.items() if "folder of its own" in problem} == {"apart", "rings"}
    with dataset(tmp_path / "dataset", ring("gossip", 1), ring("rings", 2)) as opened:
        traffic = opened.query("other_traffic")
        several = traffic.with_columns(jobs=pl.lit(2), problem=pl.col("run_id").replace_strict(problems, default=None))
        filters = pl.DataFrame(
            [("gossip", 0, "port 1", None), ("rings", 0, "port 2", None)],
            ["run_id", "job", "expression", "reason"],
            orient="row",
        )
        made = {"other_traffic": several, "jobs_of_run": rows.filter(pl.col("run_id") != "apart")}
        made["job_filters"] = filters
        monkeypatch.setattr(opened, "query", lambda name: made[name])
        said = [(one.run_id, one.kind) for one in diagnosis._of_several_jobs(opened, pl.DataFrame())]
        assert said == [("gossip", "several_jobs"), ("rings", "several_jobs"), ("rings", "job_filter")]
        monkeypatch.setattr(opened, "query_arrow", lambda name, _: made[name].to_arrow())
        monkeypatch.setattr(opened, "sql_arrow", lambda _: rows.filter("is_pair_averaging").to_arrow())
        notes = opened._other_traffic("topology", {})
    assert ["--param job=0" in note for note in notes] == [False, True]


def test_beside_nothing_diagnose_tells_of_other_traffic_and_of_bytes_sent_again(
    command: RunCommand, tmp_path: Path
) -> None:
    runs = [ring(name, seed) for seed, name in enumerate(("other", "again", "before", "even"), start=1)]
    for run in runs:
        run["flows"] = run["flows"].with_columns(payload_bytes=pl.lit("1000000"), retransmitted_bytes=pl.lit("0"))
        run["flow_windows"] = run["flow_windows"].with_columns(payload_bytes=pl.lit("0"))
    for run, at_ns in (runs[0], 0), (runs[2], -(10**12)):
        beside = {"flow_id": "99", "src_ip": "10.0.0.1", "dst_ip": "10.0.0.3", "dst_port": "5201", "protocol": "6"}
        beside |= {"payload_bytes": "400000", "run_id": run["flows"]["run_id"][0]}
        run["flows"] = pl.concat([run["flows"], pl.DataFrame([beside])], how="diagonal")
        window = run["flow_windows"].filter(pl.col("flow_id") == "5")[5:6]
        start = str(int(window["window_start_ns"][0]) + at_ns)
        window = window.with_columns(
            flow_id=pl.lit("99"), payload_bytes=pl.lit("400000"), window_start_ns=pl.lit(start)
        )
        run["flow_windows"] = pl.concat([run["flow_windows"], window])
    again = pl.when(pl.col("flow_id") == "2").then(pl.lit("9000")).otherwise("retransmitted_bytes")
    runs[1]["flows"] = runs[1]["flows"].with_columns(again.alias("retransmitted_bytes"))
    for run in runs:
        without = set(runs[0]["flows"].columns) - set(run["flows"].columns)
        run["flows"] = run["flows"].with_columns(pl.lit(None, pl.String).alias(name) for name in without)
        run["flows"] = run["flows"].select(runs[0]["flows"].columns)
    dataset(tmp_path / "dataset", *runs).close()
    first, *rest = command("diagnose", "dataset").stdout.decode().splitlines()
    assert first.startswith("Nothing stands out in 4 jobs: ") and first.endswith(" ms in 11 steps and 1 more).")
    assert rest == [
        "  again, job 0: 0.009 MB from worker-3 to worker-4 (0.9% of that link's bytes) were sent again.",
        "  other, job 0: 0.4 MB (10% of its bytes) go beside it from worker-1 to worker-3, port 5201.",
    ]


@pytest.mark.long
def test_workers_of_two_servers_are_compared(tmp_path: Path) -> None:
    """One of them was 100 ms slower, and diagnose said that nobody can tell which host is slow."""
    case = read_case(Path(__file__).parents[1] / "queries/verdicts/slow_worker_of_two_servers", as_text=True)
    at_once = pl.col("first_ns").cast(pl.Int64)
    late = pl.col("flow_id").is_in(["2", "3"])  # of the worker that is late
    even = {
        **case,
        "messages": case["messages"].with_columns(
            first_ns=pl.when(late).then(at_once - 20_000_000).otherwise(at_once).cast(pl.String)
        ),
    }
    told = []
    for name, tables in (("late", case), ("even", even)):
        with write_dataset(tmp_path / name, tables) as opened:
            told.append(diagnosis.diagnose(opened).rows()["kind"].to_list())
    assert told == [["slow_host"], ["nothing"]]


@pytest.mark.long
def test_of_jobs_of_sends_alone_diagnose_says_that_no_host_can_be_called_slow(
    command: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a reduce and a broadcast by sends, nothing stood out, although one host computed 120 ms longer."""
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE communicators AS SELECT *, 0 AS job, 'a,b' AS hosts, role AS role_reason "
            "FROM (VALUES ('sends', 'unknown'), ('sends', 'unknown'), ('stages', 'pipeline'), ('both', 'unknown'), "
            "('both', 'data')) AS t(run_id, role)"
        )
        rows = connection.sql(catalogue.find("job_parallelism").sql).pl()
        assert diagnosis.sends_alone(rows) == {("sends", 0)}
    with dataset(tmp_path / "dataset", ring("sends", 1), ring("even", 2)) as opened:
        monkeypatch.setattr(diagnosis, "sends_alone", lambda _: {("sends", 0)})
        told = diagnosis.diagnose(opened)
        with Results(opened) as results:
            [section] = steps.chapter.sections(results, only=["delays"])
    assert section.headline.startswith("Nothing stands out in 1 job: ")  # of those that can be compared
    assert "In 1 job (sends) collectives are sends between two hosts each, so nobody can tell" in section.headline
    assert [(one.run_id, one.kind) for one in told.remarks] == [("even", "nothing"), ("sends", "sends_alone")]
    assert told.lines()[0].startswith(
        "Nothing stands out in 1 job: no host and no link alone is seen to cost 5% of a step (even: "
    )
    assert told.lines()[1].startswith("sends, job 0: Its collectives are sends between two hosts each, so nobody ")
