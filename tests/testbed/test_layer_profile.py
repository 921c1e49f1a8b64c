"""Profiles: what hooks measure adds up to the whole passes, and each gradient is in one layer; the shipped ones.

No time is compared with a clock of the test's own. DDNN_TRACES_TORCH_PYTHON is a Python that has PyTorch, where this
one has not.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from ddnn_traces.errors import TestbedError
from ddnn_traces.testbed import layer_profile
from ddnn_traces.testbed.hosts import PROGRAMS
from ddnn_traces.testbed.layer_profile import Wanted
from ddnn_traces.testbed.programs.program_list import PROFILED_MODELS, PROFILES, read_profile

PYTHON = os.environ.get("DDNN_TRACES_TORCH_PYTHON", sys.executable)
#: Of numbers with four decimals.
ROUNDED_MS = 0.00005

MODELS = """
import torch
from torch import nn


class Unusual(nn.Module):
    '''A parameter of the model itself, a layer that is called twice, one whose weights are used without a call
    (attention's output), a weight that two layers have, and layers that get no gradient.'''

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(8))
        self.twice = nn.Linear(8, 8)
        self.attention = nn.MultiheadAttention(8, 2)
        self.unused = nn.Linear(8, 8)
        self.frozen = nn.Linear(8, 8).requires_grad_(False)
        self.first = nn.Linear(8, 8, bias=False)
        self.tied = nn.Linear(8, 8, bias=False)
        self.tied.weight = self.first.weight

    def forward(self, x):
        x = self.twice(torch.relu(self.twice(x * self.scale)))
        x, _ = self.attention(x, x, x)
        return {"logits": self.tied(self.first(self.frozen(x))), "hidden": x}


def unusual():
    print("what a model says is not in the file")
    return Unusual()


def plain():
    return nn.Sequential(nn.Flatten(), nn.Linear(24, 100), nn.ReLU(), nn.BatchNorm1d(100), nn.Linear(100, 10))


def none():
    return None


class Batches:
    '''Three a pass over the data; the last is smaller.'''

    def __iter__(self):
        for size in (6, 6, 2):
            yield torch.randn(size, 3, 8), torch.zeros(size)


def batches():
    return Batches()


def once():
    return iter([torch.randn(4, 3, 8)])


def without_a_gradient():
    return nn.ReLU()
"""


@dataclass(frozen=True)
class Measured:
    """A profile: its head and its rows."""

    head: dict[str, str]
    layers: list[dict[str, str]]

    def total(self, column: str) -> float:
        return sum(float(layer[column]) for layer in self.layers)


def read(path: Path) -> Measured:
    lines = path.read_text().splitlines()
    head = dict(line[2:].split(": ", 1) for line in lines if line.startswith("# "))
    return Measured(head, list(csv.DictReader(line for line in lines if not line.startswith("#"))))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's folder, with models of their own, and a module that has the name of one of the testbed's."""
    (tmp_path / "network.py").write_text(MODELS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def profile(model: str, batch_size: int = 4, shape: str = "3,8", repeat: int = 5, device: str = "cpu") -> Measured:
    wanted = Wanted(f"network:{model}", batch_size, device, repeat, shape)
    head = layer_profile.measure(wanted, Path("out.csv"), PYTHON)
    measured = read(Path("out.csv"))
    assert measured.head == head
    return measured


def check_sums(measured: Measured) -> None:
    """A pass ends with the interval of its last layer and begins with that of its first, so layers add up to it: but
    for the rounding of each number there is nothing between them.
    """
    head, rounded = measured.head, (len(measured.layers) + 1) * ROUNDED_MS
    for column in ("forward_ms", "backward_ms"):
        assert measured.total(column) == pytest.approx(float(head[column]), abs=rounded)
        assert all(float(layer[column]) > 0 for layer in measured.layers)
    parts = sum(float(head[part]) for part in ("forward_ms", "backward_ms", "update_ms"))
    assert parts == pytest.approx(float(head["iteration_ms"]), abs=4 * ROUNDED_MS)
    assert 4 * int(head["parameters"]) == measured.total("gradient_bytes")
    # equation 3.1 of Gao 2020
    assert float(head["images_per_s"]) == pytest.approx(
        1e3 * int(head["batch"]) / float(head["iteration_ms"]), abs=5e-4
    )
    ratio = float(head["backward_ms"]) / float(head["forward_ms"])
    assert head["forward:backward"] == f"1:{ratio:.2f}"


# --- models of one's own


@pytest.mark.testbed
@pytest.mark.parametrize("repeat", [1, 5])
def test_layers_add_up_to_the_passes(folder: Path, repeat: int) -> None:
    measured = profile("plain", repeat=repeat, batch_size=6)
    check_sums(measured)
    # without parameters (Flatten, ReLU) a module is no layer
    assert [(layer["layer"], int(layer["gradient_bytes"])) for layer in measured.layers] == [
        ("1", 4 * 2500), ("3", 4 * 200), ("4", 4 * 1010),
    ]  # fmt: skip
    kept = {1: 1, 5: 3}[repeat]
    assert measured.head["passes"] == f"{repeat}; times are means of the middle {kept} by iteration time"
    assert measured.head["input"].startswith("6 x 3 x 8 ")
    assert measured.head["device"].startswith("CPU, ")
    assert "PyTorch" in measured.head["versions"]
    assert len(read_profile("out.csv")) == 3  # the testbed takes it


@pytest.mark.testbed
def test_each_gradient_is_in_one_layer(folder: Path) -> None:
    measured = profile("unusual")
    check_sums(measured)
    attention = 3 * 8 * 8 + 3 * 8 + 8 * 8 + 8
    assert [(layer["layer"], int(layer["gradient_bytes"]) // 4) for layer in measured.layers] == [
        ("model", 8), ("twice", 72), ("attention", attention), ("first", 64),
    ]  # fmt: skip


@pytest.mark.testbed
def test_loading_is_a_layer_before_the_others(folder: Path) -> None:
    head = layer_profile.measure(Wanted("network:plain", 6, data="network:batches"), Path("out.csv"), PYTHON)
    measured = read(Path("out.csv"))
    assert [layer["layer"] for layer in measured.layers] == ["loading", "1", "3", "4"]
    loading = measured.layers[0]
    assert loading["forward_ms"] == head["loading_ms"] and float(head["loading_ms"]) > 0
    assert (float(loading["backward_ms"]), loading["gradient_bytes"]) == (0, "0")
    parts = ("loading_ms", "forward_ms", "backward_ms", "update_ms")
    assert sum(float(head[part]) for part in parts) == pytest.approx(float(head["iteration_ms"]), abs=5 * ROUNDED_MS)
    assert head["input"] == "6 x 3 x 8 (batch first) of network:batches"
    assert len(read_profile("out.csv")) == 4  # the testbed takes it


#: A GPU's events in place of which a test has others: a time is refused before the device has reached the event.
EVENTS = """
import json, sys, time
import torch
from programs import profile

class Event:
    recorded = []
    def __init__(self, enable_timing):
        assert enable_timing
        self.reached = False
    def record(self):
        self.at = time.perf_counter()
        Event.recorded.append(self)
    def elapsed_time(self, end):
        assert self.reached and end.reached
        return 1e3 * (end.at - self.at)

def synchronize():
    for event in Event.recorded:
        event.reached = True

torch.cuda.Event, torch.cuda.synchronize = Event, synchronize
sys.path.insert(0, ".")
import network
layers, passes = profile.measure(network.unusual(), torch.randn(4, 3, 8), "cuda", 2)
print(json.dumps([len(Event.recorded), len(layers), *[[sum(one.layers_forward.values()), one.forward,
    sum(one.layers_backward.values()), one.backward] for one in passes]]))
"""


@pytest.mark.testbed
def test_on_a_gpu_times_are_those_of_its_events(folder: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(PROGRAMS.parent)}
    done = subprocess.run([PYTHON, "-c", EVENTS], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    events, layers, *passes = json.loads(done.stdout.splitlines()[-1])
    # of three passes: start, end of forward, of backward and of update; a layer more is called twice
    # and its gradients: two tensors of twice, four of attention, one each of model and first
    assert events == 3 * (4 + layers + 1 + 2 + 4 + 1 + 1)
    for forward, whole_forward, backward, whole_backward in passes:
        assert (forward, backward) == pytest.approx((whole_forward, whole_backward))


@pytest.mark.testbed
@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (Wanted("nowhere:build"), "nowhere:build: ModuleNotFoundError: No module named 'nowhere'; give a module in"),
        (Wanted("network:nothing"), "has no attribute 'nothing'"),
        (Wanted("network:none"), "network:none: returns NoneType; give a function that returns a torch.nn.Module"),
        (Wanted("network:without_a_gradient"), "it returns no tensor that has a gradient; correct"),
        (Wanted("network:plain"), "network:plain: an input of 4 x 3 x 224 x 224 gives RuntimeError: mat1 and mat2"),
        (Wanted("network:plain", data="network:batches"), "network:batches: ValueError: a batch has 6 inputs; give"),
        (Wanted("network:plain", data="network:none"), "network:none: TypeError: 'NoneType' object is not iterable"),
        (Wanted("network:plain", data="network:once"), "network:once: ValueError: it gives no batch, or no second"),
        (Wanted("network:plain", 10**11, input_shape="3,8"), "out of memory .* give a smaller --batch-size"),
    ],
)
def test_what_cannot_be_measured(folder: Path, wanted: Wanted, message: str) -> None:
    with pytest.raises(TestbedError, match=message) as error:
        layer_profile.measure(wanted, folder / "out.csv", PYTHON)
    assert "\n" not in str(error.value)
    assert not (folder / "out.csv").exists()


def has(code: str) -> bool:
    """Whether a condition in the Python that has PyTorch is true."""
    return subprocess.run([PYTHON, "-c", f"import torch; assert {code}"], capture_output=True).returncode == 0


@pytest.mark.testbed
def test_a_gpu(folder: Path) -> None:
    if has("torch.cuda.is_available()"):
        measured = profile("plain", device="cuda")
        check_sums(measured)
        assert measured.head["device"].startswith("GPU, ")
        return
    with pytest.raises(TestbedError, match="finds no GPU: give --device cpu, or by --python PATH a Python whose"):
        profile("plain", device="cuda")


# --- the papers' models


#: Counts the parameters of the models that are named.
COUNT = """
import json, sys
from programs import profile
print(json.dumps({name: sum(one.numel() for one in profile.build(name)[0].parameters()) for name in sys.argv[1:]}))
"""


@pytest.mark.testbed
def test_the_models_have_the_parameters_of_their_profiles() -> None:
    if not has("__import__('torchvision')"):
        pytest.skip("torchvision is not installed, or does not load")
    environment = {**os.environ, "PYTHONPATH": f"{PROGRAMS.parent}:{os.environ.get('PYTHONPATH', '')}"}
    command = [PYTHON, "-c", COUNT, *PROFILED_MODELS]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    profiled = {name: read(PROFILES / f"{name}.csv").total("gradient_bytes") / 4 for name in PROFILED_MODELS}
    assert json.loads(done.stdout) == profiled


@pytest.mark.parametrize("name", PROFILED_MODELS)
def test_a_shipped_profile_adds_up_and_says_what_it_was_measured_on(name: str) -> None:
    measured = read(PROFILES / f"{name}.csv")
    check_sums(measured)
    assert measured.head["model"] == name
    assert measured.head["batch"] == "4"
    assert measured.head["device"].startswith(("CPU, ", "GPU, "))
    assert {"PyTorch", "torchvision"} <= {words.split()[0] for words in measured.head["versions"].split(", ")}
