"""Measure a profile: forward and backward time and gradient bytes of each layer of one of torchvision's models.

    PYTHONPATH=ddnn_traces/testbed python -m programs.profile resnet50 --batch-size 4 > profiles/resnet50.csv

A layer is a module without modules in it that has parameters; the time of the others is in that of the layer before.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import platform
import statistics
import sys
import time
from collections import defaultdict
from typing import Any

import torch
from torch import nn

_MODELS = ("mobilenet_v2", "resnet50", "resnet101", "densenet201", "vgg19", "inception_v3")
_REPEAT = 5


def measure(model: nn.Module, inputs: torch.Tensor) -> list[tuple[str, float, float, int]]:
    """Name, median forward and backward ms, and gradient bytes of each layer, in the order of the forward pass."""
    layers = {name: module for name, module in model.named_modules() if list(module.parameters(recurse=False))}
    began: list[tuple[str, float]] = []
    reached: dict[str, float] = {}  # when the last gradient of a layer was there
    for name, layer in layers.items():
        layer.register_forward_pre_hook(lambda *_, name=name: began.append((name, time.perf_counter())))
        for parameter in layer.parameters(recurse=False):
            parameter.register_post_accumulate_grad_hook(lambda *_, n=name: reached.update({n: time.perf_counter()}))
    forward: dict[str, list[float]] = defaultdict(list)
    backward: dict[str, list[float]] = defaultdict(list)
    for _ in range(_REPEAT + 1):
        began.clear()
        reached.clear()
        model.zero_grad()
        out: Any = model(inputs)
        scores = out if isinstance(out, torch.Tensor) else out.logits + out.aux_logits
        middle = time.perf_counter()
        scores.sum().backward()
        for (name, start), (_, end) in zip(began, [*began[1:], ("", middle)], strict=True):
            forward[name].append(end - start)
        start = middle
        for name, end in sorted(reached.items(), key=lambda item: item[1]):
            backward[name].append(end - start)
            start = end
    return [
        (
            name,
            1e3 * statistics.median(forward[name][1:]),
            1e3 * statistics.median(backward[name][1:] or [0.0]),
            4 * sum(parameter.numel() for parameter in layers[name].parameters(recurse=False)),
        )
        for name in forward
    ]


def main() -> None:
    """Entry point."""
    import torchvision

    parser = argparse.ArgumentParser(prog="programs.profile")
    parser.add_argument("model", choices=_MODELS)
    parser.add_argument("--batch-size", type=int, default=4)
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    options = {"init_weights": False} if given.model == "inception_v3" else {}
    model = torchvision.models.get_model(given.model, weights=None, **options)
    side = 299 if given.model == "inception_v3" else 224
    rows = measure(model, torch.randn(given.batch_size, 3, side, side))
    versions = f"torchvision {torchvision.__version__}, PyTorch {torch.__version__}"
    print(f"# {given.model} of {versions}, batch {given.batch_size},")
    print(f"# median of {_REPEAT} passes, one thread of a CPU ({platform.machine()}), {datetime.date.today()}.")
    print("# Measured by programs/profile.py. --option time_scale=F multiplies these times.")
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["layer", "forward_ms", "backward_ms", "gradient_bytes"])
    writer.writerows((name, f"{forward:.3f}", f"{backward:.3f}", size) for name, forward, backward, size in rows)


if __name__ == "__main__":
    main()
