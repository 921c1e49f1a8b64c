"""claims.csv: what is asked of a release, by whom it may be written, and what is never run."""

from __future__ import annotations

import csv
import io
import shutil
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from damages import found
from publishing import ABOUT, CLAIMS

import ddnn_traces
from ddnn_traces.errors import LeakError, PublishError, UsageError
from ddnn_traces.release import claims, facts
from ddnn_traces.release.claims import FAILS, HOLDS, UNKNOWN
from ddnn_traces.release.descriptions import artifact
from ddnn_traces.store import layout

Run = Callable[..., subprocess.CompletedProcess[bytes]]


def one(command: str, expected: str = "1", tolerance: str = "0", **more: str) -> facts.Claim:
    return facts.Claim("a claim", "a test", command, expected, tolerance, **more)


def sql(text: str, expected: str = "1", tolerance: str = "0", **more: str) -> facts.Claim:
    return one(f'ddnn-traces sql RELEASE "{text}"', expected, tolerance, **more)


def written(path: Path, *rows: facts.Claim) -> Path:
    out = io.StringIO()
    lines = csv.writer(out, lineterminator="\n")
    lines.writerow(claims.COLUMNS)
    lines.writerows([*vars(row).values()] for row in rows)
    path.write_text(out.getvalue())
    return path


def told(command: Run, *arguments: str | Path) -> tuple[int, str, str]:
    done = command("claims", *arguments)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def verdict(small: Path, claim: facts.Claim, **limits: float) -> tuple[str, str]:
    (outcome,) = claims.evaluate(small, [claim], **limits)
    return outcome.verdict, outcome.reason


def test_values_are_compared_within_the_tolerance() -> None:
    def judged(value: object, expected: str, tolerance: str) -> str:
        return claims.judged(sql("SELECT 1", expected, tolerance), value).verdict

    assert judged(0.4, "0.3", "0.1") == HOLDS  # 0.4 - 0.3 is more than 0.1 in binary
    assert judged(0.4001, "0.3", "0.1") == FAILS
    assert judged(99, "100", "1%") == HOLDS and judged(98, "100", "1%") == FAILS
    assert judged(-99, "-100", "1%") == HOLDS and judged(100, "-100", "1%") == FAILS
    assert judged(2, "2", "0") == HOLDS and judged(2.5, "2", "0") == FAILS
    assert judged("ring", "ring", "") == HOLDS and judged("Ring", "ring", "exact") == FAILS
    assert judged(True, "true", "exact") == HOLDS
    assert judged("ring", "2", "0") == UNKNOWN and judged(True, "1", "0") == UNKNOWN


#: Statement -> a part of the reason for which it has no value.
NO_VALUE = {
    "SELECT 'nan'::DOUBLE": "the value is nan",
    "SELECT 'inf'::DOUBLE": "the value is inf",
    "SELECT NULL": "the value is null",
    "SELECT 1 WHERE false": "no row",
    "FROM range(1000000000000)": "several rows",
    "SELECT 1 AS a, 2 AS b": "2 columns",
    "SELECT [1]": "the value is a list",
    "SELECT repeat('x', 10000000)": "bytes; at most",
    "SELECT none FROM runs": "none",
    "FROM read_csv('/etc/passwd')": "disabled by configuration",
    "FROM read_text('/etc/passwd')": "disabled by configuration",
    "FROM read_parquet('../*/flows/*/*.parquet')": "disabled by configuration",
    "FROM glob('/*')": "disabled by configuration",
    "FROM 'https://example.org/x.parquet'": "",
    "FROM enable_logging(level := 'debug', storage := 'file')": "",
}


def test_what_is_no_value_is_no_claim_that_holds(small: Path) -> None:
    asked = [facts.Claim(text, "a test", f'ddnn-traces sql RELEASE "{text}"', "1", "0") for text in NO_VALUE]
    for outcome in claims.evaluate(small, asked):
        assert outcome.verdict == UNKNOWN and NO_VALUE[outcome.claim.claim] in outcome.reason, outcome
        assert outcome.reason and "\n" not in outcome.reason and len(outcome.reason) < 400


def test_a_named_query_with_parameters_runs_and_a_column(small: Path) -> None:
    of_run = "--run torch-mlp1-sgd-32-gloo-0ms-ring"
    known = one(f"ddnn-traces query RELEASE topology {of_run}", "ring", "exact", column="topology")
    wrong = {
        "ddnn-traces query RELEASE pair_volume --param runs=1 --param=hosts=2 --run=torch-*": "several rows",
        f"ddnn-traces query RELEASE topology {of_run}x": "no run",
        f"ddnn-traces query RELEASE topology {of_run}": "columns; name the one",
    }
    first, *others = claims.evaluate(small, [known, *map(one, wrong)])
    assert first.verdict == HOLDS
    for outcome in others:
        assert outcome.verdict == UNKNOWN and wrong[outcome.claim.command] in outcome.reason, outcome


def test_a_query_without_end_has_one(small: Path) -> None:
    endless = sql("SELECT sum(a.range * b.range) FROM range(1000000000) a, range(1000000) b")
    assert verdict(small, endless, claim_s=0.05) == (UNKNOWN, "ended: it took 0.05 s")
    assert verdict(small, endless, all_s=0.0) == (UNKNOWN, "all claims together had 0 s")


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf /",
        "ddnn-traces ingest RELEASE --out x",
        "ddnn-traces sql /etc 'SELECT 1'",
        "ddnn-traces sql ../RELEASE 'SELECT 1'",
        "ddnn-traces sql RELEASE 'SELECT 1' > x",
        "ddnn-traces sql RELEASE 'SELECT 1'; touch x",
        "ddnn-traces sql RELEASE 'SELECT 1' --write",
        "ddnn-traces sql RELEASE 'SELECT 1; SELECT 2'",
        "ddnn-traces sql RELEASE \"COPY runs TO 'x.csv'\"",
        "ddnn-traces sql RELEASE \"ATTACH '/tmp/x.db'\"",
        "ddnn-traces sql RELEASE 'INSTALL httpfs'",
        "ddnn-traces sql RELEASE 'LOAD httpfs'",
        "ddnn-traces sql RELEASE 'SET memory_limit = 1'",
        "ddnn-traces sql RELEASE \"WITH x AS (COPY runs TO 'x.csv') SELECT 1\"",
        "ddnn-traces sql RELEASE 'SELECT 1) LIMIT 2; DROP TABLE x; FROM (SELECT 1'",
        "ddnn-traces sql RELEASE 'no SQL'",
        "ddnn-traces sql RELEASE",
        "ddnn-traces sql RELEASE $(id)",
        "ddnn-traces query RELEASE topology --out x",
        "ddnn-traces query RELEASE topology --run",
        "ddnn-traces query RELEASE 'topology",
        "python -c 1",
    ],
)
def test_no_other_command_is_run(tmp_path: Path, command: str) -> None:
    path = written(tmp_path / "c.csv", sql("SELECT 1"), facts.Claim("another", "a test", command, "1", "0"))
    with pytest.raises(UsageError, match=r"c\.csv: line 3, column command: ") as raised:
        claims.read(path)
    assert "\n" not in str(raised.value)
    assert [file.name for file in tmp_path.iterdir()] == ["c.csv"]


def test_a_query_that_is_not_known_stops_no_other_claim(small: Path, tmp_path: Path, command: Run) -> None:
    """One line with it, and none was computed."""
    of_queries = [
        facts.Claim(name, "a test", f"ddnn-traces query RELEASE {name}", "1", "0")
        for name in ("no_such_query", "pair_volume --param window=many")
    ]
    path = written(tmp_path / "c.csv", *of_queries, sql("SELECT 1"))
    code, out, err = told(command, small, "--claims", path)
    assert code == 1 and "3 claims: 1 hold, 2 could not be computed" in err
    assert "no query named no_such_query" in out and "pair_volume has no parameter window" in out
    with pytest.raises(UsageError, match=r"c\.csv: claim no_such_query, column command: no query named no_such_query"):
        claims.answerable(path)  # as publish does


HEAD = "claim,source,command,expected,tolerance\n"
LINE = "a,b,ddnn-traces sql RELEASE 'SELECT 1',1,0\n"


@pytest.mark.parametrize(
    "content, says",
    [
        (b"", "line 1 has no column claim"),
        (b"\xff\xfe" + HEAD.encode(), "not text in UTF-8"),
        (b"claim,shell\n", "line 1: unknown column shell"),
        (b"claim,claim,source,command,expected,tolerance\n", "has a column twice"),
        ((HEAD + "a,b,c\n").encode(), "line 2 has 3 cells, not 5"),
        ((HEAD + 'a,"b\n').encode(), "line 2 cannot be read as CSV"),
        ((HEAD + LINE.replace("a,", ",", 1)).encode(), "line 2, column claim: is empty"),
        ((HEAD + LINE + LINE).encode(), "line 3, column claim: the same"),
        ((HEAD + LINE.replace(",0", ",-1")).encode(), "line 2, column tolerance: -1: below 0"),
        ((HEAD + LINE.replace(",0", ",nan")).encode(), "line 2, column tolerance: tolerance 'nan' is no number"),
        ((HEAD + LINE.replace(",1,", ",one,")).encode(), "line 2, column tolerance: expected 'one' is no number"),
        ((HEAD + LINE.replace("a", "x" * 1001, 1)).encode(), "line 2, column claim: 1,001 letters"),
        ((HEAD + LINE.replace("a", "x" * 10_000_000, 1)).encode(), "bytes; of such a file at most"),
        ((HEAD + "a,b\n" * 100_000).encode(), "100,000 claims; at most 1,000"),
    ],
    ids=range(14),
)
def test_a_file_of_another_form_is_one_line(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "c.csv"
    path.write_bytes(content)
    with pytest.raises(UsageError) as raised:
        claims.read(path)
    assert says in str(raised.value) and "\n" not in str(raised.value) and len(str(raised.value)) < 600


def test_a_link_in_a_release_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / layout.CLAIMS).symlink_to("/etc/passwd")
    with pytest.raises(UsageError, match="a link"):
        claims.of_release(tmp_path)


def test_the_command_tells_and_ends_with_1(small: Path, tmp_path: Path, command: Run) -> None:
    odd = facts.Claim("\x1b[31mred\u202e", "a test", "ddnn-traces sql RELEASE \"SELECT '\x1b[2J'\"", "x", "exact")
    path = written(tmp_path / "c.csv", sql("SELECT 1"), odd)
    code, out, err = told(command, small, "--claims", path)
    assert code == 1
    assert "\x1b" not in out + err and "\u202e" not in out + err and "\\x1b[31mred\\u202e" in out
    assert "does not hold" in out and "2 claims: 1 hold, 1 does not hold" in err
    table = tmp_path / "out.csv"
    code, _, _ = told(command, small, "--claims", written(path, sql("SELECT 1")), "--out", table)
    assert code == 0 and table.read_text().splitlines()[1].startswith('"a claim","1","1",')
    code, _, err = told(command, small)
    assert code == 2 and "no such file" in err and "Traceback" not in err
    code, _, err = told(command, small, "--claims", written(path, one("rm -rf /")))
    assert code == 2 and len(err.splitlines()) == 1 and "line 2, column command" in err


def test_claims_are_published_listed_and_computed_again(small: Path, tmp_path: Path, command: Run) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(CLAIMS)
    about = tmp_path / "about.toml"
    about.write_text('claims_time = "3 s on 2 cores"')
    release = ddnn_traces.publish(small, tmp_path / "traces", about=about, claims=path, **ABOUT).path
    assert claims.of_release(release) == claims.read(path) == facts.read(release).claims
    assert f'"{layout.CLAIMS}"' in (release / layout.RO_CRATE).read_text()
    page = (release / layout.ARTIFACT).read_text()
    assert "2 claims" in page and "SELECT count(*) FROM runs" in page and "Time needed: 3 s on 2 cores." in page
    rows = found(release, tmp_path / "scratch", "claims", "artifact", "agreement", "listed files")
    assert {row.status for row in rows} == {"passed", "not checked"}
    assert [row.subject for row in rows if row.check == "claims"] == [layout.CLAIMS, "their values"]
    shutil.make_archive(str(tmp_path / "packed"), "zip", release)
    for place in (release, tmp_path / "packed.zip"):
        code, out, err = told(command, place)
        assert code == 0 and "2 claims: 2 hold" in err, (out, err)


def test_without_claims_the_page_says_so(release: Path) -> None:
    assert not (release / layout.CLAIMS).exists()
    assert "The release makes no claims" in (release / layout.ARTIFACT).read_text()


def test_a_claim_that_the_tables_do_not_bear_is_not_published(small: Path, tmp_path: Path) -> None:
    wrong = written(tmp_path / "c.csv", sql("SELECT count(*) FROM runs", "3"))
    with pytest.raises(PublishError, match=r"a claim: does not hold \(found 2, expected 3\)"):
        ddnn_traces.publish(small, tmp_path / "traces", claims=wrong, **ABOUT)
    assert not (tmp_path / "traces").exists()


@pytest.mark.parametrize(
    "claim",
    [
        facts.Claim("of alicenet7", "a test", 'ddnn-traces sql RELEASE "SELECT 1"', "1", "0"),
        facts.Claim("a claim", "a test", "ddnn-traces sql RELEASE \"SELECT 1 WHERE 'x' <> 'alicenet7'\"", "1", "0"),
        facts.Claim("a claim", "a test", 'ddnn-traces sql RELEASE "SELECT 1 -- 10.0.0.1"', "1", "0"),
    ],
    ids=["a sentence", "a constant", "an address of the dataset"],
)
def test_words_of_a_claim_must_not_identify(small: Path, tmp_path: Path, claim: facts.Claim) -> None:
    with ddnn_traces.open(small) as dataset:
        (address,) = dataset.sql("SELECT min(src_ip) AS ip FROM flows")["ip"]
    own = facts.Claim(claim.claim, claim.source, claim.command.replace("10.0.0.1", address), "1", "0")
    with pytest.raises(LeakError):
        ddnn_traces.publish(small, tmp_path / "traces", claims=written(tmp_path / "c.csv", own), **ABOUT)
    assert not (tmp_path / "traces").exists()


def test_the_page_names_the_python_that_pip_needs() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == f">={artifact.PYTHON}"
