"""What the page asks has an end: a limit of time and of size, and the next query or choice of runs."""

from __future__ import annotations

import collections
import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from ddnn_traces.explore import contents
from ddnn_traces.query.bounded import LIMIT_S, Limit
from ddnn_traces.query.dataset import Dataset

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

#: After this time a query ends when another one is asked: the user chose anew. The charts ask theirs at the same time.
PATIENCE_S = 5.0

#: Of making the tables of chosen runs.
MAKING_LIMIT_S = 600.0

#: Of an answer. The charts' are sums: 400 windows by ten colours, or a row a step.
MOST_BYTES = 64 << 20


class TooMuch(Exception):
    """An answer is larger than a chart's can be."""


class Answers:
    """Runs the messages of Mosaic's widget one after another in a thread, and sends each its answer.

    The widget itself runs them in the thread that also receives them, so that no message could end a query. send: the
    widget's.
    """

    def __init__(
        self,
        send: Callable[..., None],
        patience_s: float = PATIENCE_S,
        limit_s: float = LIMIT_S,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._send, self._patience_s, self._limit_s, self._most_bytes = send, patience_s, limit_s, most_bytes
        self._lock = threading.Lock()
        self._waiting: collections.deque[tuple[duckdb.DuckDBPyConnection, dict[str, Any]]] = collections.deque()
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._running: _Query | None = None

    def use(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Answer from this connection's tables from now on. What is asked of the last one ends."""
        why = "other runs were chosen"
        with self._lock:
            while self._waiting:  # the page asks no more before it has an answer to each
                _, message = self._waiting.popleft()
                self._send({"error": f"ended: {why}", "uuid": message["uuid"]})
            if self._running:
                self._running.limit.end(why)
            # of its own, since the page's table of flows uses the connection at the same time
            self._connection = connection.cursor()

    def ask(self, _widget: object, message: dict[str, Any], _buffers: Sequence[object]) -> None:
        """A message of the page; called by the widget."""
        with self._lock:
            assert self._connection is not None
            self._waiting.append((self._connection, message))
            if self._running is None:
                threading.Thread(target=self._answer_all, args=[self._begin_next()], daemon=True).start()
            elif time.monotonic() - self._running.since_s >= self._patience_s:
                self._running.limit.end("another was asked")

    def _begin_next(self) -> _Query | None:
        self._running = _Query(*self._waiting.popleft(), self._limit_s) if self._waiting else None
        return self._running

    def _answer_all(self, query: _Query | None) -> None:
        while query:
            self._answer(query.message, query.limit)
            with self._lock:
                query = self._begin_next()

    def _answer(self, message: dict[str, Any], limit: Limit) -> None:
        kind, uuid = message["type"], message["uuid"]
        try:
            with limit as connection:
                rows = _rows(connection, message["sql"], self._most_bytes)
            self._send({"type": kind, "uuid": uuid}, buffers=[rows] if kind == "arrow" else None)
        except Exception as error:  # whatever it is, the page waits for an answer
            self._send({"error": limit.said(error), "uuid": uuid})


@dataclass(frozen=True)
class Selection:
    """Selected runs. zoom: as of contents.make()."""

    runs: tuple[str, ...] = ()
    zoom: tuple[float, float] | None = None


@dataclass(frozen=True)
class Made:
    """What was made of a choice of runs: their contents in the dataset's connection, or an error."""

    selection: Selection
    dataset: Dataset = field(repr=False)  # which would read files
    connection: duckdb.DuckDBPyConnection = field(repr=False)
    contents: contents.Contents | None = None
    error: str = ""


class Choice:
    """Makes the tables of the chosen runs in a thread, so that the one that reads the page can take the next choice.

    told: called by that thread with what was made, unless other runs were chosen since. thread: as threading.Thread.
    """

    def __init__(
        self,
        where: str | Path,
        told: Callable[[Made], None],
        thread: Callable[..., threading.Thread] = threading.Thread,
        limit_s: float = MAKING_LIMIT_S,
    ) -> None:
        self._where, self._told, self._thread, self._limit_s = where, told, thread, limit_s
        self._lock = threading.Lock()
        self._limit: Limit | None = None
        self._selection = Selection()

    def choose(self, selection: Selection) -> None:
        """End what is made of other runs, and begin with these, if any; of the same ones, go on."""
        if selection == self._selection:
            return
        self._selection = selection
        with self._lock:
            if self._limit:
                self._limit.end("other runs were chosen")
            self._limit = None
        if selection.runs:
            dataset = _opened(self._where, selection.runs)
            self._limit = limit = Limit(dataset.provide(""), self._limit_s)
            self._thread(target=self._make, args=[selection, dataset, limit], daemon=True).start()

    def _make(self, selection: Selection, dataset: Dataset, limit: Limit) -> None:
        try:
            with limit as connection:
                made = Made(selection, dataset, connection, contents.make(dataset, selection.zoom))
        except Exception as error:  # whatever it is, the page waits
            dataset.close()
            made = Made(selection, dataset, connection, error=limit.said(error))
        with self._lock:
            if limit is self._limit:
                self._told(made)


class Preparation:
    """A context that makes the tables of the first run in a thread, while the browser starts.

    The page then finds the modules loaded, and that run's jobs in the cache. What is not made at the end is ended: a
    thread that is left in DuckDB would end the process with an error. runs: those to choose from, or patterns; empty:
    all.
    """

    def __init__(self, where: str | Path, runs: Sequence[str]) -> None:
        self._where, self._runs = where, runs
        self._limit: Limit | None = None
        self._has_ended = threading.Event()
        self._thread = threading.Thread(target=self._make, name=type(self).__name__)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._has_ended.set()
        if self._limit:
            self._limit.end("the page ended")
        self._thread.join()

    def _make(self) -> None:
        with contextlib.suppress(Exception):  # the page itself says what is wrong
            with Dataset(self._where, list(self._runs) or None, read_only=True) as every:
                first = every.run_ids[:1]
            with Dataset(self._where, first) as one:
                self._limit = limit = Limit(one.provide(""))
                with limit:
                    if not self._has_ended.is_set():
                        contents.make(one)


def _opened(where: str | Path, runs: Sequence[str]) -> Dataset:
    """These runs of a dataset. All of its runs are not named: a filter of 190 names makes DuckDB's plans far slower."""
    every = Dataset(where)
    if len(every.run_ids) == len(runs):
        return every
    every.close()
    return Dataset(where, list(runs))


class _Query:
    """A message that is being answered since now."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, message: dict[str, Any], limit_s: float) -> None:
        self.message, self.since_s, self.limit = message, time.monotonic(), Limit(connection, limit_s)


def _rows(connection: duckdb.DuckDBPyConnection, sql: str, most_bytes: int) -> bytes:
    """Rows as a stream of Arrow, as the widget reads them; of a statement without rows, nothing."""
    sink = pa.BufferOutputStream()
    found = connection.sql(sql)
    if found is not None:  # its truth value would count its rows
        with found.to_arrow_reader() as batches, pa.ipc.new_stream(sink, batches.schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
                if sink.tell() > most_bytes:
                    raise TooMuch(f"more than {most_bytes >> 20} MiB of rows")
    stream: bytes = sink.getvalue().to_pybytes()
    return stream
