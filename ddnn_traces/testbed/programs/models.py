"""Models that train here, small enough for a run in a minute on two cores, and true ones by their gradients' sizes.

program_list.MODELS states how many parameters each has; a test counts them.
"""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from .program_list import MODELS, WIDTHS, read_profile

SEED = 1
CLASSES = 10


def build(name: str, compute: str, options: dict[str, str]) -> nn.Module:
    """The model, with the same first weights on every worker. Raises SystemExit for an unknown name."""
    torch.manual_seed(SEED)
    if compute != "real":
        try:
            layers = read_profile(compute.removeprefix("sleep:"))
        except ValueError as error:
            raise SystemExit(str(error)) from error
        return Profiled(layers, float(options.get("time_scale", "1")))
    if name in WIDTHS:
        return _mlp(WIDTHS[name])
    builders = {"mobilenet_like": _mobilenet, "resnet_like": _resnet, "densenet_like": _densenet}
    if name not in builders:
        raise SystemExit(f"no model named {name}: it is one of {', '.join(MODELS)}, or --compute sleep:PROFILE")
    return builders[name]()


def parameters(model: nn.Module) -> int:
    """Number of trainable parameters."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def size(parameters: int) -> dict[str, int]:
    """A model's size as truth.json has it."""
    return {"model_params": parameters, "model_bytes": 4 * parameters}


def _mlp(widths: tuple[int, ...]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def _picture() -> nn.Module:
    """784 numbers as a picture of 28 x 28."""
    return nn.Unflatten(1, (1, 28, 28))


def _convolution(inputs: int, outputs: int, size: int = 3, stride: int = 1, groups: int = 1) -> nn.Sequential:
    convolution = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU())


def _mobilenet() -> nn.Module:
    """Depthwise separable convolutions, as MobileNet's (Howard et al. 2017)."""
    layers: list[nn.Module] = [_picture(), _convolution(1, 32, stride=2)]
    for inputs, outputs, stride in [(32, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 1), (512, 512, 1)]:
        layers += [_convolution(inputs, inputs, stride=stride, groups=inputs), _convolution(inputs, outputs, size=1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, CLASSES))


class _Residual(nn.Module):
    """Two convolutions around which the input is added (He et al. 2016)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(_convolution(inputs, outputs, stride=stride), _convolution(outputs, outputs))
        self.around = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x) + self.around(x)


def _resnet() -> nn.Module:
    blocks = [_Residual(inputs, outputs, 2) for inputs, outputs in [(32, 64), (64, 128), (128, 256)]]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, CLASSES)]
    return nn.Sequential(_picture(), _convolution(1, 32), *blocks, *head)


class _Dense(nn.Module):
    """Each layer takes the outputs of all before it (Huang et al. 2017)."""

    def __init__(self, inputs: int, growth: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_convolution(inputs + growth * n, growth) for n in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.cat([x, layer(x)], 1)
        return x


def _densenet() -> nn.Module:
    layers: list[nn.Module] = [_picture(), _convolution(1, 32, stride=2)]
    channels = 32
    for _ in range(3):
        layers += [_Dense(channels, 24, 6), _convolution(channels + 144, (channels + 144) // 2, 1), nn.AvgPool2d(2)]
        channels = (channels + 144) // 2
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES))


# --- computation that takes a GPU's time


_PRODUCT = 2048  # rows and columns: 17.2 GFLOP


class _Products(torch.autograd.Function):
    """The same values, and products of matrices beside them: so many forward, twice as many backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, matrix: torch.Tensor, count: int) -> torch.Tensor:
        ctx.matrix, ctx.count = matrix, count
        for _ in range(count):
            torch.mm(matrix, matrix)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        for _ in range(2 * ctx.count):
            torch.mm(ctx.matrix, ctx.matrix)
        return gradients[0], None, None


def add_work(model: nn.Module, gigaflop: float) -> None:
    """Let each fully connected layer compute as long as a larger one: a step on a GPU is then of milliseconds."""
    matrix = torch.randn(_PRODUCT, _PRODUCT)
    count = max(1, round(gigaflop / (2e-9 * _PRODUCT**3)))
    for layer in model.modules():
        if isinstance(layer, nn.Linear):
            layer.register_forward_pre_hook(lambda _, inputs: _Products.apply(inputs[0], matrix, count))


# --- true models by the sizes of their gradients


class _Layer(torch.autograd.Function):
    """Takes a layer's time and gives its gradient, without computing."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, forward_s: float, backward_s: float) -> torch.Tensor:
        ctx.backward_s, ctx.shape = backward_s, weight.shape
        time.sleep(forward_s)
        return x + 0

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        time.sleep(ctx.backward_s)
        return gradients[0], torch.zeros(ctx.shape), None, None


class Profiled(nn.Module):
    """A model of a profile's layers: gradients of their sizes, sleep in place of computation."""

    def __init__(self, layers: list[tuple[float, float, int]], time_scale: float) -> None:
        super().__init__()
        self.times = [(forward * time_scale, backward * time_scale) for forward, backward, _ in layers]
        self.weights = nn.ParameterList(nn.Parameter(torch.zeros(size)) for _, _, size in layers if size)
        self._has_weight = [size > 0 for _, _, size in layers]
        self.unused = torch.zeros(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = x[:, :CLASSES].clone().requires_grad_()
        weights = iter(self.weights)
        for (forward, backward), has_weight in zip(self.times, self._has_weight, strict=True):
            weight = next(weights) if has_weight else self.unused
            scores = _Layer.apply(scores, weight, forward, backward)
        return scores
