"""The logs of a training program: steps, their phases, and each collective or transfer, in files that ingest reads."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

STEPS_PER_EPOCH = 10


class HostClock:
    """When the program comes to a place, by this host's clock."""

    def start(self) -> None:
        """A step begins."""

    def mark(self) -> Any:
        """This place."""
        return time.time()

    def seconds(self, mark: Any) -> float:
        """Unix time of a place, once the step is over."""
        return float(mark)

    def settle(self) -> None:
        """Return when what the step has asked for is done."""


class Recorder:
    """What one worker does, step by step, written at the end of each step: a killed run has the steps that it did.

    A process that is started again adds to the files, and counts on: a step's number is how many were done before it.

    The files are train_history-LABEL.log, phases-LABEL.csv and events-LABEL.csv in `out`; where there are no steps, as
    at a server that answers each worker by itself, there are none. Times are unix seconds of this host's clock.
    writes: False for a rank that is not the first one of its host, whose steps and events are in no file.
    """

    def __init__(self, out: Path, label: str, clock: HostClock | None = None, writes: bool = True) -> None:
        self._out, self.label, self._writes = out, label, writes
        self._clock = clock or HostClock()
        self._step = self.done - 1
        self._begin = 0.0
        self._epoch: list[tuple[float, float]] = []  # loss and accuracy of its steps
        self._events: list[tuple[str, str, Any, Any, int]] = []  # of this step
        self._files: list[TextIO] = []
        if self.done:
            self.note("restart", "process", time.time())

    @property
    def done(self) -> int:
        """Steps that the files have, of this process and those before it."""
        path = self._out / f"phases-{self.label}.csv"
        return path.read_text().count("\n") - 1 if self._writes and path.is_file() else 0

    def begin_step(self) -> None:
        """The next step begins."""
        self._step += 1
        self._clock.start()
        self._begin = time.time()

    def end_step(self, loss: float = 0.0, accuracy: float = 0.0, held_out: float | None = None) -> None:
        """The step is over. Its communication is from the start of its first event to the end of its last.

        held_out: the accuracy on pictures that are not trained on, where the program knows it in each step.
        """
        self._clock.settle()
        end = time.time()
        events = [
            (kind, name, self._clock.seconds(begin), self._clock.seconds(until), size)
            for kind, name, begin, until, size in self._events
        ]
        self._events = []
        first = min((begin for _, _, begin, _, _ in events), default=end)
        last = max((until for _, _, _, until, _ in events), default=end)
        history, phases, collectives = self._files or self._open(held_out is not None)
        self._epoch.append((loss, accuracy))
        history.write(_history_line("batch", self._step, end, loss, accuracy, held_out))
        if len(self._epoch) == STEPS_PER_EPOCH:
            mean_loss, mean_accuracy = (sum(values) / STEPS_PER_EPOCH for values in zip(*self._epoch, strict=True))
            number = self._step // STEPS_PER_EPOCH
            history.write(_history_line("epoch", number, end, mean_loss, mean_accuracy, held_out))
            self._epoch = []
        phases.write(",".join([str(self._step), *map(_seconds, (self._begin, first, last, end))]) + "\n")
        for kind, name, begin, until, size in events:
            collectives.write(f"{self._step},{kind},{name},{_seconds(begin)},{_seconds(until)},{size}\n")

    def _open(self, has_held_out: bool = False) -> list[TextIO]:
        history = "Type,ID,Timestamp,Loss,Accuracy" + (",HeldOutAccuracy" if has_held_out else "")
        headers = {
            f"train_history-{self.label}.log": history,
            f"phases-{self.label}.csv": "step,t_begin,t_comm_begin,t_comm_end,t_end",
            f"events-{self.label}.csv": "step,kind,name,t_begin,t_end,bytes",
        }
        for name, header in headers.items():
            path = self._out / name if self._writes else Path(os.devnull)
            file = path.open("a", buffering=1)  # a line at a time
            if not file.tell():
                file.write(f"{header}\n")
            self._files.append(file)
        return self._files

    def mark(self) -> Any:
        """This place of the step, for `add`."""
        return self._clock.mark()

    def add(self, kind: str, begin: Any, end: Any, size: int, name: str = "") -> None:
        """An event of this step: kind, marks of its start and end, bytes that it worked on."""
        self._events.append((kind, name, begin, end, size))

    def forget(self) -> None:
        """Events since the last step are of none: of a step that warms up."""
        self._events = []

    @contextlib.contextmanager
    def timed(self, kind: str, size: int, name: str = "") -> Iterator[None]:
        """The same, for what the body does. Before step 0 nothing is recorded."""
        begin = self.mark()
        yield
        if self._step >= 0:
            self.add(kind, begin, self.mark(), size, name)

    def note(self, kind: str, name: str, begin: float) -> None:
        """An event between two steps, at once: it is now over."""
        _, _, collectives = self._files or self._open()
        collectives.write(f"{self._step + 1},{kind},{name},{_seconds(begin)},{_seconds(time.time())},\n")


def _history_line(
    kind: str, number: int, end: float, loss: float, accuracy: float, held_out: float | None = None
) -> str:
    more = "" if held_out is None else f",{held_out:.6f}"
    return f"{kind},{number},{_seconds(end)},{loss:.6f},{accuracy:.6f}{more}\n"


def _seconds(value: float) -> str:
    return f"{value:.9f}"


def write_truth(out: Path, truth: dict[str, Any]) -> None:
    """Write truth.json: what the run's description says of this job."""
    (out / "truth.json").write_text(json.dumps(truth, indent=1))
