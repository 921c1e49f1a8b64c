"""Profiles of models: the times of their layers, measured by programs/profile.py in a Python that has PyTorch."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ddnn_traces.errors import TestbedError, UsageError
from ddnn_traces.store.whole_files import whole_file
from ddnn_traces.testbed.hosts import PROGRAMS
from ddnn_traces.testbed.programs.program_list import PROFILED_MODELS
from ddnn_traces.text import one_line

_PROGRAM = PROGRAMS / "profile.py"
_OWN_MODEL = re.compile(r"[\w.]+:\w+")
_SHAPE = re.compile(r"[1-9]\d*(,[1-9]\d*)*")


@dataclass(frozen=True)
class Wanted:
    """What is measured. model: one of PROFILED_MODELS, or MODULE:FUNCTION, which returns a torch.nn.Module.

    device: cpu or cuda. repeat: passes that count. input_shape: of one input, "3,224,224"; None: the model's usual one.
    data: MODULE:FUNCTION, which returns batches of batch_size, whose loading is measured; None: random inputs.
    """

    model: str
    batch_size: int = 4
    device: str = "cpu"
    repeat: int = 5
    input_shape: str | None = None
    data: str | None = None


def measure(wanted: Wanted, out: Path, python: str = sys.executable) -> dict[str, str]:
    """Measure a model in the given Python and write its profile; returns the file's head by its keys (iteration_ms,
    images_per_s, forward:backward, device, ...).

    The file is there when all of it is, and the one that was there stays as it is until then. Raises UsageError for
    what is wrong in the call, TestbedError where the Python or the device cannot measure it.
    """
    words = _words(wanted)
    try:
        with whole_file(out) as half_written:
            with half_written.open("wb") as file:
                _run([python, "-", *words], file)
            return _head(half_written)
    except OSError as error:
        raise UsageError(f"{out}: cannot be written ({error.strerror}); choose another --out") from error


def _words(wanted: Wanted) -> list[str]:
    """Arguments of the program. Raises UsageError for values that it does not know."""
    if wanted.model not in PROFILED_MODELS and not _OWN_MODEL.fullmatch(wanted.model):
        raise UsageError(
            f"no model named {wanted.model}: give one of {', '.join(PROFILED_MODELS)}, or MODULE:FUNCTION of your own"
        )
    words = [wanted.model, "--device", wanted.device]
    words += ["--batch-size", str(wanted.batch_size), "--repeat", str(wanted.repeat)]
    if wanted.data is not None:
        if not _OWN_MODEL.fullmatch(wanted.data):
            raise UsageError(f"--data {wanted.data}: write MODULE:FUNCTION, which returns batches")
        if wanted.input_shape is not None:
            raise UsageError("--input-shape: is of random inputs, and --data gives others; leave one of both out")
        return [*words, "--data", wanted.data]
    if wanted.input_shape is None:
        return words
    if not _SHAPE.fullmatch(wanted.input_shape):
        raise UsageError(f"--input-shape {wanted.input_shape}: write the sizes of one input, as 3,224,224")
    return [*words, "--input-shape", wanted.input_shape]


def _run(command: list[str], out: IO[bytes]) -> None:
    """Run the program to its end. It is read from standard input: the first folder for imports is then the user's, not
    the one of the program, whose modules would hide others of their names. Raises TestbedError.
    """
    with _PROGRAM.open("rb") as program:
        try:
            done = subprocess.run(command, stdin=program, stdout=out, stderr=subprocess.PIPE, check=False)
        except OSError as error:
            raise TestbedError(
                f"{command[0]}: {error.strerror}; give a Python that has torch: --python PATH"
            ) from error
    if done.returncode < 0:
        raise TestbedError(
            f"{command[0]} was ended by signal {-done.returncode} (9: by the kernel, where memory is short); give a "
            "smaller --batch-size"
        )
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise TestbedError(
            one_line(said[-1]) if said else f"{command[0]}: exit code {done.returncode}; give a Python that has torch"
        )


def _head(path: Path) -> dict[str, str]:
    """The lines `# key: value` of a profile."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("# ")]
    return {key: value for key, _, value in (line[2:].partition(": ") for line in lines)}
