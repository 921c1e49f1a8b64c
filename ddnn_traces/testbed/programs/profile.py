"""Measure a profile of a model: forward and backward time and gradient bytes of each layer, and whole iterations.

    PYTHONPATH=ddnn_traces/testbed python -m programs.profile resnet50 --batch-size 4 > resnet50.csv

`ddnn-traces profile` runs this file alone, in the Python that has PyTorch: it imports nothing from beside it. Exit code
1, and one line on stderr, for what a user can correct.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import datetime
import importlib
import platform
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

try:
    import torch
    from torch import nn
except ImportError as missing:
    raise SystemExit(
        f"{sys.executable} cannot import torch ({missing}): there, pip install torch torchvision, or give another "
        "Python by --python PATH"
    ) from missing

#: Blocks of the stages of ResNet-200 (He et al. 2016, Identity Mappings in Deep Residual Networks), which torchvision
#: has no function for; its blocks are those of torchvision's ResNet-50, not pre-activated ones.
_RESNET200 = [3, 24, 36, 3]
#: Channels and stride of the depthwise separable convolutions of MobileNet (Howard et al. 2017, table 1), of which
#: torchvision has the second version and later ones only.
_MOBILENET_V1 = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)]


@dataclass(frozen=True)
class Layer:
    """A module that is called and has parameters of its own that get gradients; each parameter is in one layer."""

    name: str
    module: nn.Module
    parameters: list[nn.Parameter]

    @property
    def gradient_bytes(self) -> int:
        """Size of its gradients, in bytes."""
        return sum(parameter.numel() * parameter.element_size() for parameter in self.parameters)


@dataclass(frozen=True)
class Pass:
    """An iteration: times in ms, forward and backward also by layer. Those of the layers add up to the whole."""

    forward: float
    backward: float
    update: float
    layers_forward: dict[str, float]
    layers_backward: dict[str, float]
    loading: float = 0.0

    @property
    def iteration(self) -> float:
        """Time from asking for the input to changed weights, ms."""
        return self.loading + self.forward + self.backward + self.update


class Clock:
    """Marks of time on a device. On cuda they are events in its stream: kernels run after the call that asks for them,
    and what lies between two events is the device's own time, without a wait at each layer.
    """

    def __init__(self, device: str) -> None:
        self._on_gpu = device == "cuda"

    def mark(self) -> Any:
        """Now, on the device."""
        if not self._on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def wait(self) -> None:
        """Return when the device has done all that it was asked for: only then the times of events can be read."""
        if self._on_gpu:
            torch.cuda.synchronize()

    def ms(self, begin: Any, end: Any) -> float:
        """From one mark to another, in ms."""
        return float(begin.elapsed_time(end)) if self._on_gpu else 1e3 * (end - begin)


def find_layers(model: nn.Module, inputs: torch.Tensor) -> list[Layer]:
    """The layers of a model in the order of its forward pass, found by one pass.

    A parameter is that of its module where that is called, else of the called module before it (nn.MultiheadAttention
    uses its output's weights and does not call it). Parameters that get no gradient are in no layer.
    """
    called: dict[nn.Module, None] = {}
    hooks = [
        module.register_forward_pre_hook(lambda module, _: called.setdefault(module)) for module in model.modules()
    ]
    loss(model(inputs)).backward()
    for hook in hooks:
        hook.remove()
    owned: dict[nn.Module, list[nn.Parameter]] = defaultdict(list)
    seen: set[int] = set()  # a parameter that two modules share is sent once
    owner = model
    for module in model.modules():
        owner = module if module in called else owner
        for parameter in module.parameters(recurse=False):
            if parameter.grad is not None and id(parameter) not in seen:
                seen.add(id(parameter))
                owned[owner].append(parameter)
    names = {module: name for name, module in model.named_modules()}
    return [Layer(names[module] or "model", module, owned[module]) for module in called if owned[module]]


def loss(out: Any) -> torch.Tensor:
    """A number that depends on all outputs of a model: a tensor, or several in a tuple, a list or a dictionary.

    Raises TypeError where none of them has a gradient.
    """
    outputs = [out] if isinstance(out, torch.Tensor) else out.values() if isinstance(out, dict) else out
    sums = [one.sum() for one in outputs if isinstance(one, torch.Tensor) and one.requires_grad]
    if not sums:
        raise TypeError("it returns no tensor that has a gradient")
    return sum(sums[1:], start=sums[0])


def measure(
    model: nn.Module, inputs: torch.Tensor, device: str, repeat: int, batches: Iterator[torch.Tensor] | None = None
) -> tuple[list[Layer], list[Pass]]:
    """The layers, and `repeat` passes after two that are not counted (memory is allocated, kernels are chosen).

    Loading: until the next of `batches` is on the device. Without batches all passes take the same inputs.
    Forward: from the start of a layer to that of the next, so that the time of modules without parameters is in that of
    the layer before. Backward: from the gradients of the layer behind it to its own. The first layer has also what is
    before it, the last what is behind it.
    """
    layers = find_layers(model, inputs)
    clock = Clock(device)
    began: list[tuple[str, Any]] = []
    reached: dict[str, Any] = {}  # when the last gradient of a layer was there; the latest is last

    def reach(name: str) -> None:
        reached.pop(name, None)
        reached[name] = clock.mark()

    for layer in layers:
        layer.module.register_forward_pre_hook(lambda *_, name=layer.name: began.append((name, clock.mark())))
        for parameter in layer.parameters:
            parameter.register_post_accumulate_grad_hook(lambda *_, name=layer.name: reach(name))
    # lr 0 computes as much, and all passes compute the same numbers
    optimizer = torch.optim.SGD([parameter for layer in layers for parameter in layer.parameters], lr=0.0)
    passes = []
    for _ in range(repeat + 1):
        began.clear()
        reached.clear()
        optimizer.zero_grad()
        clock.wait()
        asked = clock.mark() if batches else None
        inputs = next(batches).to(device) if batches else inputs
        start = clock.mark()
        out = model(inputs)
        middle = clock.mark()
        loss(out).backward()
        end = clock.mark()
        optimizer.step()
        updated = clock.mark()
        clock.wait()
        passes.append(
            Pass(
                clock.ms(start, middle),
                clock.ms(middle, end),
                clock.ms(end, updated),
                _between([name for name, _ in began], [start, *(mark for _, mark in began[1:]), middle], clock),
                _between(list(reached), [middle, *list(reached.values())[:-1], end], clock),
                clock.ms(asked, start) if batches else 0.0,
            )
        )
    return layers, passes[1:]


def _between(names: list[str], marks: list[Any], clock: Clock) -> dict[str, float]:
    """The time in ms between each mark and the next, added up by name: a layer may be called several times."""
    times: dict[str, float] = defaultdict(float)
    for name, begin, end in zip(names, marks[:-1], marks[1:], strict=True):
        times[name] += clock.ms(begin, end)
    return dict(times)


def load(name: str, batch_size: int) -> Iterator[torch.Tensor]:
    """The inputs of the batches of MODULE:FUNCTION, over and over: tensors, or the first of a tuple or list.

    Raises TypeError and ValueError for what is no batch of that size.
    """
    batches = _own(name)
    while True:
        number = 0
        for number, batch in enumerate(batches, 1):
            inputs = batch[0] if isinstance(batch, (tuple, list)) else batch
            if not isinstance(inputs, torch.Tensor):
                raise TypeError(f"a batch is {type(inputs).__name__}, no tensor")
            if len(inputs) == batch_size:  # the last of an epoch may be smaller
                yield inputs
            elif number == 1:
                raise ValueError(f"a batch has {len(inputs)} inputs; give --batch-size {len(inputs)}")
        if not number:
            raise ValueError("it gives no batch, or no second epoch")


def middle_passes(passes: list[Pass]) -> list[Pass]:
    """Those between the quartiles of the iteration time, which leaves out pauses of the machine.

    Means of them are used, not medians, because means of layers add up to those of the whole.
    """
    quarter = len(passes) // 4
    return sorted(passes, key=lambda one: one.iteration)[quarter : len(passes) - quarter]


def table(layers: list[Layer], passes: list[Pass]) -> list[tuple[str, str, str, int]]:
    """Name, forward and backward ms with four decimals, and gradient bytes of each layer; first the loading, if any."""
    loading = [("loading", _mean(one.loading for one in passes), "0.0000", 0)] if passes[0].loading else []
    return loading + [
        (
            layer.name,
            _mean(one.layers_forward.get(layer.name, 0.0) for one in passes),
            _mean(one.layers_backward.get(layer.name, 0.0) for one in passes),
            layer.gradient_bytes,
        )
        for layer in layers
    ]


def figures(passes: list[Pass], batch_size: int) -> dict[str, str]:
    """Of Gao 2020 iteration time and images/s (table 3.1; minibatch / iteration time, equation 3.1), the parts of an
    iteration and forward:backward (section 3.6).
    """
    parts = {
        "iteration_ms": _mean(one.iteration for one in passes),
        **({"loading_ms": _mean(one.loading for one in passes)} if passes[0].loading else {}),
        "forward_ms": _mean(one.forward for one in passes),
        "backward_ms": _mean(one.backward for one in passes),
        "update_ms": _mean(one.update for one in passes),
    }
    images = 1e3 * batch_size / float(parts["iteration_ms"])
    ratio = float(parts["backward_ms"]) / float(parts["forward_ms"])
    return {**parts, "images_per_s": f"{images:.3f}", "forward:backward": f"1:{ratio:.2f}"}


def _mean(times: Iterable[float]) -> str:
    return f"{statistics.fmean(times):.4f}"  # a tenth of a microsecond, less than any hook takes


def build(name: str) -> tuple[nn.Module, str]:
    """A model, and the version of the package that it is from. name: one of torchvision's, or MODULE:FUNCTION.

    Raises SystemExit.
    """
    if ":" in name:
        model = _own(name)
        if not isinstance(model, nn.Module):
            raise SystemExit(f"{name}: returns {type(model).__name__}; give a function that returns a torch.nn.Module")
        return model, ""
    try:
        import torchvision
    except (ImportError, RuntimeError) as error:  # RuntimeError: a build for CUDA beside a PyTorch without
        raise SystemExit(
            f"{sys.executable} cannot import torchvision ({_said(error)}): there, pip install torchvision of the same "
            "build as torch, or give another Python by --python PATH"
        ) from error
    version = f"torchvision {torchvision.__version__}"
    if name == "resnet200":
        return torchvision.models.ResNet(torchvision.models.resnet.Bottleneck, _RESNET200), version
    if name == "mobilenet_v1":
        return _mobilenet_v1(), version
    options = {"init_weights": False} if name == "inception_v3" else {}  # which would take half a minute
    try:
        return torchvision.models.get_model(name, weights=None, **options), version
    except ValueError as error:
        raise SystemExit(f"{name}: {version} has no such model; give another, or MODULE:FUNCTION") from error


def _own(name: str) -> Any:
    """What MODULE:FUNCTION returns. Raises SystemExit."""
    module, _, function = name.partition(":")
    try:
        return getattr(importlib.import_module(module), function)()
    except Exception as error:  # of any kind: it is the user's code
        raise SystemExit(f"{name}: {_said(error)}; give a module in this folder or on PYTHONPATH") from error


def _mobilenet_v1() -> nn.Module:
    def convolution(inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
        filters = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
        return [filters, nn.BatchNorm2d(outputs), nn.ReLU()]

    layers, channels = convolution(3, 32, 3, 2), 32
    for outputs, stride in _MOBILENET_V1:
        layers += convolution(channels, channels, 3, stride, channels) + convolution(channels, outputs, 1)
        channels = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _is_out_of_memory(error: Exception) -> bool:
    # on a CPU it is a RuntimeError: "DefaultCPUAllocator: can't allocate memory", or "not enough memory"
    return isinstance(error, torch.cuda.OutOfMemoryError | MemoryError) or "DefaultCPUAllocator" in str(error)


def _device_name(device: str) -> str:
    """What measured: the name of the GPU, or of the CPU with the number of threads."""
    if device == "cuda":
        return f"GPU, {torch.cuda.get_device_name()}"
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"CPU, {names[0] if names else platform.processor()} ({platform.machine()}), one thread"


def _versions(of_model: str, device: str) -> str:
    gpu = f"CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}" if device == "cuda" else ""
    here = [f"Python {platform.python_version()}", f"PyTorch {torch.__version__}", of_model, gpu]
    return ", ".join(filter(None, here))


def _shape(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="programs.profile")
    parser.add_argument(
        "model", help="torchvision's, resnet200, mobilenet_v1, or MODULE:FUNCTION that returns an nn.Module"
    )
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--data", help="MODULE:FUNCTION that returns batches, as a DataLoader; default: random inputs")
    parser.add_argument("--input-shape", type=_shape, help="of one input; default: 3,224,224; inception_v3: 3,299,299")
    given = parser.parse_args()
    if given.input_shape is None:
        given.input_shape = (3, 299, 299) if given.model == "inception_v3" else (3, 224, 224)
    return given


def _batches(given: argparse.Namespace) -> Iterator[torch.Tensor]:
    """The inputs of --data. Raises SystemExit."""
    try:
        yield from load(given.data, given.batch_size)
    except Exception as error:  # of any kind: it is the user's code
        raise SystemExit(f"{given.data}: {_said(error)}") from error


def _profile(given: argparse.Namespace) -> tuple[dict[str, str], list[tuple[str, str, str, int]]]:
    """What the head of the file says, by key, and the rows of the layers. Raises SystemExit."""
    model, version = build(given.model)
    batches = _batches(given) if given.data else None
    own = next(batches) if batches else None
    shape = (given.batch_size, *given.input_shape) if own is None else tuple(own.shape)
    size = " x ".join(map(str, shape))
    try:
        inputs = (torch.randn(shape) if own is None else own).to(given.device)
        layers, passes = measure(model.to(given.device).train(), inputs, given.device, given.repeat, batches)
    except Exception as error:  # of any kind: the model may be the user's
        if _is_out_of_memory(error):
            raise SystemExit(
                f"{given.model}: out of memory with an input of {size}: give a smaller --batch-size"
            ) from error
        raise SystemExit(
            f"{given.model}: an input of {size} gives {_said(error)}; correct --input-shape, --batch-size or the model"
        ) from error
    kept = middle_passes(passes)
    head = {
        "model": given.model,
        "parameters": str(sum(parameter.numel() for layer in layers for parameter in layer.parameters)),
        "input": f"{size} (batch first)" + (f" of {given.data}" if given.data else ""),
        "batch": str(given.batch_size),
        "device": _device_name(given.device),
        "versions": _versions(version, given.device),
        "date": str(datetime.date.today()),
        "passes": f"{len(passes)}; times are means of the middle {len(kept)} by iteration time",
        **figures(kept, given.batch_size),
    }
    return head, table(layers, kept)


def main() -> None:
    """Entry point."""
    given = _arguments()
    if given.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit(
            f"PyTorch {torch.__version__} of {sys.executable} finds no GPU: give --device cpu, or by --python PATH a "
            "Python whose PyTorch finds one"
        )
    torch.set_num_threads(1)
    torch.manual_seed(1)
    with contextlib.redirect_stdout(sys.stderr):  # what a user's model prints is no part of the file
        head, rows = _profile(given)
    for key, value in head.items():
        print(f"# {key}: {value}")
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["layer", "forward_ms", "backward_ms", "gradient_bytes"])
    writer.writerows(rows)


if __name__ == "__main__":
    main()
