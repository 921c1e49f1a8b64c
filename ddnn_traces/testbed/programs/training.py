"""The loop of the PyTorch and MPI programs, on synthetic data (ten classes, each a random picture with noise), or on
scikit-learn's digits, of which a part is held out."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from . import models, slowness
from .gloo import Communication
from .logs import STEPS_PER_EPOCH, Recorder, write_truth
from .program_list import PROGRAMS

INPUTS = 784
_LEARNING_RATE = 0.05
#: Collectives that the flight recorder keeps: all of a run of some hundred steps.
_ENTRIES = "20000"


@dataclass(frozen=True)
class Arguments:
    """What a program is started with."""

    program: str
    model: str
    batch_size: int
    steps: int
    warm_up: int
    out: Path
    pause_ms: float
    compute: str
    seed: int
    options: dict[str, str]
    trace: list[str]
    data: str


class Batches:
    """A seeded source of batches, different on every worker."""

    def __init__(self, batch_size: int, seed: int, rank: int) -> None:
        device = torch.get_default_device()
        self._centres = torch.randn(models.CLASSES, INPUTS, generator=torch.Generator(device).manual_seed(seed))
        self._random = torch.Generator(device).manual_seed(seed + 1 + rank)
        self._batch_size = batch_size

    def draw(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Pictures, batch x 784, and their classes."""
        labels = torch.randint(models.CLASSES, (self._batch_size,), generator=self._random)
        noise = torch.randn(self._batch_size, INPUTS, generator=self._random)
        return self._centres[labels] + 2 * noise, labels

    def held_out_accuracy(self, model: nn.Module) -> float | None:
        """None: all pictures are drawn, and none is held out."""
        return None


class Digits:
    """Batches of scikit-learn's 1,797 digits (8 x 8 pixels, here 28 x 28), drawn with another seed on every worker.

    A fifth is held out, the same everywhere: no batch has a picture of it.
    """

    def __init__(self, batch_size: int, seed: int, rank: int) -> None:
        from sklearn.datasets import load_digits

        digits = load_digits()
        pictures = torch.tensor(digits.data, dtype=torch.float32).reshape(-1, 1, 8, 8)
        pictures = nn.functional.interpolate(pictures, size=28, mode="bilinear").flatten(1)
        labels = torch.tensor(digits.target)
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(models.SEED))
        trained, held_out = order[len(order) // 5 :], order[: len(order) // 5]
        pictures = (pictures - pictures[trained].mean()) / pictures[trained].std()
        self._pictures, self._labels = pictures[trained], labels[trained]
        self._held_out = pictures[held_out], labels[held_out]
        self._random = torch.Generator().manual_seed(seed + 1 + rank)
        self._batch_size = batch_size

    def draw(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Pictures, batch x 784, and their classes."""
        chosen = torch.randint(len(self._labels), (self._batch_size,), generator=self._random)
        return self._pictures[chosen], self._labels[chosen]

    def held_out_accuracy(self, model: nn.Module) -> float | None:
        """Of this worker's model on the pictures that are held out, 0 to 1."""
        pictures, labels = self._held_out
        training = model.training
        model.eval()
        with torch.no_grad():
            hits = (model(pictures).argmax(1) == labels).float().mean().item()
        model.train(training)
        return hits


class Checkpoints:
    """The model, saved every so many steps by the first worker (option checkpoint), in a folder that all hosts see."""

    def __init__(self, arguments: Arguments) -> None:
        self._every = int(arguments.options.get("checkpoint", 0))
        self._path = Path(os.environ.get("CHECKPOINTS", "")) / "model.pt"

    def load(self, model: nn.Module) -> int:
        """Fill the model from the last checkpoint, if there is one; how many steps it had been trained."""
        if not self._every or not self._path.is_file():
            return 0
        saved = torch.load(self._path, weights_only=True)
        model.load_state_dict(saved["model"])
        return int(saved["steps"])

    def save(self, model: nn.Module, steps: int, rank: int, recorder: Recorder) -> None:
        """Save, where it is time to."""
        if rank or not self._every or steps % self._every:
            return
        begin = time.time()
        part = self._path.with_suffix(".part")
        torch.save({"model": model.state_dict(), "steps": steps}, part)
        part.replace(self._path)  # so that a killed process leaves a whole one
        recorder.note("checkpoint", f"steps {steps}", begin)


def prepare_traces(wanted: Collection[str]) -> None:
    """Turn the flight recorder on or off: before the process group is made."""
    os.environ["TORCH_FR_BUFFER_SIZE"] = _ENTRIES if "flight_recorder" in wanted else "0"


@contextlib.contextmanager
def _traced(wanted: Collection[str], out: Path, label: str) -> Iterator[Callable[[], object]]:
    """What PyTorch itself records of the training inside, its flight recorder and its profiler (Kineto), into files of
    `out`; docs/profilers.md lists how ingest takes them. Yields what is called after each step."""
    with contextlib.ExitStack() as stack:
        profiler = None
        if "kineto" in wanted:
            activities = [torch.profiler.ProfilerActivity.CPU]
            activities += [torch.profiler.ProfilerActivity.CUDA] if torch.cuda.is_available() else []
            always = torch.profiler.schedule(wait=0, warmup=0, active=1 << 30)  # with one, steps are marked
            profiler = stack.enter_context(
                torch.profiler.profile(activities=activities, schedule=always, record_shapes=True)
            )
        yield profiler.step if profiler else lambda: None
    if profiler:
        profiler.export_chrome_trace(str(out / f"kineto-{label}.json.gz"))
    if "flight_recorder" in wanted:
        from torch._C import _distributed_c10d as c10d

        dump = getattr(c10d, "_dump_fr_trace_json", None) or c10d._dump_nccl_trace_json
        (out / f"flight_recorder-{label}.json").write_bytes(dump())


def train(
    arguments: Arguments, communication: Communication, recorder: Recorder, model: nn.Module, wrapped: nn.Module,
    checkpoints: Checkpoints, first: int,
) -> None:  # fmt: skip
    """Train the steps from the first one on, after those that warm up: they are in no log."""
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=_LEARNING_RATE)
    source = Digits if arguments.data == "digits" else Batches
    batches = source(arguments.batch_size, arguments.seed, communication.data_rank())

    def train_step() -> tuple[float, float]:
        time.sleep(arguments.pause_ms / 1e3)  # in place of heavier computation
        inputs, labels = batches.draw()
        optimizer.zero_grad(set_to_none=False)
        said = communication.forward_backward(wrapped, inputs, labels)
        communication.after_backward(wrapped)
        optimizer.step()
        communication.after_step(wrapped)
        return said

    for _ in range(0 if first or recorder.done else arguments.warm_up):
        train_step()
        recorder.forget()
    with _traced(arguments.trace, arguments.out, recorder.label) as trace_step:
        for step in range(first, arguments.steps):
            recorder.begin_step()
            slowness.sleep(step)
            loss, accuracy = train_step()
            recorder.end_step(loss, accuracy, batches.held_out_accuracy(model))
            checkpoints.save(model, step + 1, communication.rank, recorder)
            trace_step()


def run(arguments: Arguments, communication: Communication, recorder: Recorder) -> None:
    """One process of a program from its start to its end: write the truth, train or serve."""
    model = communication.model(arguments)
    if work := {**PROGRAMS[arguments.program].options, **arguments.options}.get("work"):
        models.add_work(model, float(work))
    size = models.parameters(model)
    checkpoints, begin = Checkpoints(arguments), time.time()
    first = checkpoints.load(model)
    if communication.rank >= communication.workers:
        communication.serve(size, arguments.steps - first)
    else:
        wrapped = communication.wrap(model)
        if communication.rank == 0 and not recorder.done:  # now: a run that is ended has it, too
            write_truth(arguments.out, _truth(arguments, communication, size))
        if first:
            recorder.note("restore", f"steps {first}", begin)
        train(arguments, communication, recorder, model, wrapped, checkpoints, first)
    print(f"weights {_digest(model)}")
    communication.close()


def _truth(arguments: Arguments, communication: Communication, size: int) -> dict[str, Any]:
    servers = range(1, communication.hosts - communication.workers + 1)
    return {
        "versions": {**_versions(), **communication.versions()},
        "roles": {f"ps-{number}": "parameter_server" for number in servers},
        **models.size(size),
        "epochs": arguments.steps // STEPS_PER_EPOCH or None,
        **communication.truth(4 * size),
    }


def _digest(model: nn.Module) -> str:
    """SHA-256 of all parameters: replicas that are equal have the same."""
    digest = hashlib.sha256()
    for parameter in model.parameters():
        values = parameter.detach()
        values = values.to_local() if hasattr(values, "to_local") else values  # a shard of FSDP
        digest.update(values.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _versions() -> dict[str, str]:
    """What computes here."""
    return {"python": sys.version.split()[0], "torch": torch.__version__}
