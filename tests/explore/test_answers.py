"""A query of the page ends: at the next one, at its limits of time and size, and when other runs are chosen."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from endless_run import ENDLESS_RUN, SHORT_RUN, endless_dataset

from ddnn_traces.explore import answers
from ddnn_traces.explore.answers import Answers, Choice, Made

#: 10^12 rows: hours.
ENDLESS = "SELECT sum(sqrt(one.range + other.range)) FROM range(1000000) AS one, range(1000000) AS other"

Asked = Callable[..., tuple[Answers, "queue.Queue[tuple[dict[str, Any], Any]]"]]


@pytest.fixture
def asked() -> Asked:
    """Answers over a table of two rows, and what is sent. Keywords: limits."""

    def make(**limits: Any) -> tuple[Answers, queue.Queue[tuple[dict[str, Any], Any]]]:
        sent: queue.Queue[tuple[dict[str, Any], Any]] = queue.Queue()
        answers = Answers(lambda message, buffers=None: sent.put((message, buffers)), **limits)
        connection = duckdb.connect()
        connection.execute("CREATE TABLE numbers AS FROM range(2)")
        answers.use(connection)
        return answers, sent

    return make


def ask(answers: Answers, uuid: str, sql: str, kind: str = "arrow") -> None:
    answers.ask(None, {"type": kind, "uuid": uuid, "sql": sql}, [])


def rows(buffers: list[bytes]) -> list[Any]:
    return pa.ipc.open_stream(buffers[0]).read_all().to_pylist()


def test_messages_are_answered_in_their_order(asked: Asked) -> None:
    answers, sent = asked()
    ask(answers, "a", "CREATE TABLE more AS SELECT range + 1 AS next FROM numbers", "exec")
    ask(answers, "b", "FROM more")
    ask(answers, "c", "FROM nothing")
    assert sent.get() == ({"type": "exec", "uuid": "a"}, None)
    message, buffers = sent.get()
    assert message == {"type": "arrow", "uuid": "b"}
    assert rows(buffers) == [{"next": 1}, {"next": 2}]
    message, buffers = sent.get()
    assert message["uuid"] == "c"
    assert "nothing" in message["error"]


def test_a_query_without_end_ends_at_the_next_one(asked: Asked) -> None:
    answers, sent = asked(patience_s=0)
    ask(answers, "endless", ENDLESS)
    ask(answers, "next", "FROM numbers")
    message, _ = sent.get()
    assert message == {"uuid": "endless", "error": "ended: another was asked"}
    message, buffers = sent.get()
    assert message == {"type": "arrow", "uuid": "next"}
    assert len(rows(buffers)) == 2


def test_queries_that_are_asked_together_all_have_answers(asked: Asked) -> None:
    answers, sent = asked()
    for uuid in "abcdef":
        ask(answers, uuid, "SELECT sum(sqrt(range)) FROM range(1000000)")
    assert [sent.get()[0] for _ in "abcdef"] == [{"type": "arrow", "uuid": uuid} for uuid in "abcdef"]


def test_a_query_ends_at_its_time(asked: Asked) -> None:
    answers, sent = asked(limit_s=0.1)
    ask(answers, "endless", ENDLESS)
    assert sent.get()[0] == {"uuid": "endless", "error": "ended: it took 0.1 s"}


def test_an_answer_has_a_limit_of_size(asked: Asked) -> None:
    answers, sent = asked(most_bytes=1 << 20)
    ask(answers, "large", "FROM range(1000000000000)")
    assert sent.get()[0] == {"uuid": "large", "error": "more than 1 MiB of rows"}
    ask(answers, "next", "FROM numbers")
    assert sent.get()[0] == {"type": "arrow", "uuid": "next"}


def test_other_runs_end_what_is_asked_of_the_last_ones(asked: Asked) -> None:
    answers, sent = asked()
    ask(answers, "endless", ENDLESS)
    ask(answers, "waiting", "FROM numbers")
    other = duckdb.connect()
    other.execute("CREATE TABLE numbers AS FROM range(3)")
    answers.use(other)
    ask(answers, "other", "FROM numbers")
    for uuid in ("waiting", "endless"):
        assert sent.get()[0] == {"uuid": uuid, "error": "ended: other runs were chosen"}
    message, buffers = sent.get()
    assert message["uuid"] == "other"
    assert len(rows(buffers)) == 3


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return endless_dataset(tmp_path_factory.mktemp("endless"))


def test_the_next_choice_ends_tables_that_are_made(endless: Path) -> None:
    told: queue.Queue[Made] = queue.Queue()
    threads: list[threading.Thread] = []

    def thread(**given: Any) -> threading.Thread:
        threads.append(threading.Thread(**given))
        return threads[-1]

    choice = Choice(endless, told.put, thread)
    choice.choose(answers.Selection((ENDLESS_RUN,)))
    choice.choose(answers.Selection((SHORT_RUN,)))
    for each in threads:
        each.join()
    made = told.get()
    assert told.empty()  # nothing of the first choice
    assert made.error == ""
    assert made.contents is not None
    assert made.contents.runs == (SHORT_RUN,)
    made.dataset.close()


def test_tables_that_are_made_have_a_limit_of_time(endless: Path) -> None:
    told: queue.Queue[Made] = queue.Queue()
    Choice(endless, told.put, limit_s=0.1).choose(answers.Selection((ENDLESS_RUN,)))
    made = told.get()
    assert (made.selection.runs, made.contents, made.error) == ((ENDLESS_RUN,), None, "ended: it took 0.1 s")


@pytest.mark.parametrize("run", [ENDLESS_RUN, "nosuch"])
def test_the_end_of_the_page_ends_what_is_prepared(endless: Path, run: str) -> None:
    with answers.Preparation(endless, [run]):
        pass
    assert answers.Preparation.__name__ not in [thread.name for thread in threading.enumerate()]


def test_the_first_run_is_prepared(endless: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: queue.Queue[list[str]] = queue.Queue()
    monkeypatch.setattr(answers.contents, "make", lambda dataset: made.put(dataset.run_ids))
    with answers.Preparation(endless, [SHORT_RUN]):
        assert made.get() == [SHORT_RUN]
