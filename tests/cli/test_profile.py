"""ddnn-traces profile: what it says where it cannot measure, and that a file is whole or not there. No PyTorch."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tools import RunCommand

from ddnn_traces.testbed.programs.program_list import PROFILED_MODELS

HEAD = {
    "model": "resnet50", "batch": "4", "device": "GPU, of a test", "versions": "PyTorch 0", "iteration_ms": "1500.0000",
    "images_per_s": "2.667", "forward:backward": "1:1.80",
}  # fmt: skip
PROFILE = "".join(f"# {key}: {value}\n" for key, value in HEAD.items())
PROFILE += "layer,forward_ms,backward_ms,gradient_bytes\nconv1,1.0000,2.0000,8\n"


def python_that(folder: Path, does: str) -> str:
    """A Python that reads the program, and does something else."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\ncat >/dev/null\n{does}\n")
    path.chmod(0o755)
    return str(path)


def error(command: RunCommand, *words: str | Path, code: int = 1) -> str:
    """The one line of a call that fails."""
    done = command("profile", *words)
    (line,) = done.stderr.decode().splitlines()
    assert (done.returncode, done.stdout) == (code, b"")
    assert line.startswith("ddnn-traces: ")
    return line


def test_a_profile_is_what_the_program_printed(command: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "profile.csv").write_text(PROFILE)
    (tmp_path / "out.csv").write_text("an older one")
    python = python_that(tmp_path, f'echo "$@" >{tmp_path}/words; cat {tmp_path}/profile.csv; echo a warning >&2')
    given = ["--batch-size", "8", "--device", "cuda", "--repeat", "3", "--input-shape", "3,64,64"]
    done = command("profile", "--model", "resnet50", "--out", "out.csv", "--python", python, *given)
    assert (done.returncode, done.stdout) == (0, b"")
    assert (tmp_path / "out.csv").read_text() == PROFILE
    assert (tmp_path / "words").read_text().split() == [
        "-", "resnet50", "--device", "cuda", "--batch-size", "8", "--repeat", "3", "--input-shape", "3,64,64",
    ]  # fmt: skip
    said = done.stderr.decode()
    for figure in ("GPU, of a test", "1,500.0 ms", "2.667 images/s", "1:1.80", "out.csv"):
        assert figure in said


def test_batches_of_ones_own(command: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "profile.csv").write_text("# loading_ms: 91.5000\n" + PROFILE)
    python = python_that(tmp_path, f'echo "$@" >{tmp_path}/words; cat {tmp_path}/profile.csv')
    call = ["--model", "resnet50", "--out", "out.csv", "--python", python, "--data", "own:batches"]
    assert "iteration 1,500.0 ms, of it loading 91.5 ms, 2.667 images/s" in command("profile", *call).stderr.decode()
    assert (tmp_path / "words").read_text().split()[-2:] == ["--data", "own:batches"]
    assert "--input-shape: is of random inputs" in error(command, *call, "--input-shape", "3,8", code=2)
    assert "--data own: write MODULE:FUNCTION" in error(command, *call[:-1], "own", code=2)


def test_help_names_the_models(command: RunCommand) -> None:
    said = " ".join(command("profile", "--help").stdout.decode().split())
    assert f"{', '.join(PROFILED_MODELS)}, with" in said


@pytest.mark.parametrize("model", ["resnet51", "resnet50:", "--help:me", "a b:c", ""])
def test_an_unknown_model(command: RunCommand, model: str) -> None:
    said = error(command, f"--model={model}", "--out", "out.csv", code=2)
    assert f"no model named {model}: give one of {', '.join(PROFILED_MODELS)}" in said


@pytest.mark.parametrize("shape", ["3x4", "", "3,0", "3,", "-3"])
def test_sizes_that_are_none(command: RunCommand, shape: str) -> None:
    said = error(command, "--model", "vgg16", "--out", "out.csv", f"--input-shape={shape}", code=2)
    assert f"--input-shape {shape}: write" in said


def test_a_python_that_is_not_there(command: RunCommand) -> None:
    said = error(command, "--model", "vgg16", "--out", "out.csv", "--python", "/nowhere/python")
    assert "/nowhere/python: No such file or directory; give a Python that has torch: --python PATH" in said


def test_a_python_without_torch(command: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('not here')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    said = error(command, "--model", "vgg16", "--out", "out.csv")
    assert f"{sys.executable} cannot import torch (not here)" in said
    assert "pip install torch torchvision, or give another Python by --python PATH" in said


@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("kill -9 $$", "signal 9 (9: by the kernel, where memory is short); give a smaller --batch-size"),
        ("echo one >&2; echo two >&2; exit 1", "ddnn-traces: two"),
        ("exit 4", "python: exit code 4"),
    ],
)
def test_a_measurement_that_fails_leaves_the_file_as_it_was(
    command: RunCommand, tmp_path: Path, does: str, said: str
) -> None:
    (tmp_path / "out.csv").write_text("an older one")
    python = python_that(tmp_path, f"echo half a profile; {does}")
    assert said in error(command, "--model", "vgg16", "--out", "out.csv", "--python", python)
    assert (tmp_path / "out.csv").read_text() == "an older one"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.csv", "python"]


def test_a_file_that_cannot_be_written_is_named_before_the_measurement(command: RunCommand, tmp_path: Path) -> None:
    python = python_that(tmp_path, f"touch {tmp_path}/measured")
    said = error(command, "--model", "vgg16", "--out", "python/out.csv", "--python", python, code=2)
    assert "python/out.csv: cannot be written (Not a directory); choose another --out" in said
    assert not (tmp_path / "measured").exists()


@pytest.mark.parametrize("words", [["--batch-size", "0"], ["--repeat", "0"], ["--device", "tpu"]])
def test_values_out_of_range(command: RunCommand, words: list[str]) -> None:
    done = command("profile", "--model", "vgg16", "--out", "out.csv", *words)
    assert words[0] in done.stderr.decode()
    assert done.returncode == 2
