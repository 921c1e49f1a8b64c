"""Patterns of today's training with PyTorch over gloo: sharded data parallel, pipeline, tensor x data parallel,
experts, and two rings at once.

truth() of each has its groups with the collectives of a step and their bytes; the same with times is in the events.
"""

import threading
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from . import models
from .gloo import Communication, Options, Ring, flat_gradient, group, nbytes, set_gradient
from .logs import Recorder

#: Width of the blocks of pipeline, tensor_data and moe.
WIDTH = 512


#: Functions of torch.distributed that fully_shard calls, in PyTorch 2.13 and before.
_FSDP_CALLS = {
    "allgather": ("all_gather_single", "all_gather_into_tensor"),
    "reduce_scatter": ("reduce_scatter_single", "reduce_scatter_tensor"),
}


class Fsdp(Communication):
    """Fully sharded data parallel (ZeRO 3; torch.distributed.fsdp.fully_shard): all-gather of a layer's parameters
    before its forward and again before its backward pass, reduce-scatter of its gradients. gloo's reduce-scatter sends
    as much as an all-reduce."""

    def wrap(self, model: nn.Module) -> nn.Module:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh(torch.get_default_device().type, (self.workers,))
        self._sizes = []
        for layer in model.children():
            if models.parameters(layer):
                self._sizes.append(sum(self._padded_bytes(parameter) for parameter in layer.parameters()))
                fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        for kind, names in _FSDP_CALLS.items():
            name = next(name for name in names if hasattr(dist, name))
            setattr(dist, name, self._recorded(kind, getattr(dist, name)))
        dist.barrier()
        return model

    def _padded_bytes(self, parameter: torch.Tensor) -> int:
        """Bytes of a parameter whose rows are divided over the workers, each with the same number."""
        rows = -(-len(parameter) // self.workers) * self.workers
        return nbytes(parameter) // len(parameter) * rows

    def _recorded(self, kind: str, function: Any) -> Any:
        """The collective, noted with the bytes of the whole tensor."""

        def call(*arguments: Any, **options: Any) -> Any:
            tensors = [value for value in (*arguments, *options.values()) if isinstance(value, torch.Tensor)]
            with self.recorder.timed(kind, max(map(nbytes, tensors)), "workers"):
                work = function(*arguments, **options)
                if work is not None:
                    work.wait()
            return work

        return call

    def after_backward(self, model: nn.Module) -> None:
        """Gradients are averaged, each shard at its worker, when the backward pass returns."""

    def truth(self, size: int) -> dict[str, Any]:
        layers = [("allgather", layer, 2) for layer in self._sizes]
        layers += [("reduce_scatter", layer, 1) for layer in self._sizes]
        return {"topology": None, "groups": [group("workers", range(self.workers), layers)], "replicas": False}


class _Block(nn.Module):
    """Two layers, around which the input is added."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x)


class Pipeline(Communication):
    """Every worker has a stage: activations of micro-batches go from rank r to r + 1, their gradients back (GPipe,
    Huang et al. 2019: all forward passes, then all backward passes). Option microbatches, default 4."""

    def model(self, arguments: Any) -> nn.Module:
        torch.manual_seed(models.SEED + self.rank)
        first = [nn.Linear(784, WIDTH)] if self.rank == 0 else []
        last = [nn.Linear(WIDTH, models.CLASSES)] if self.rank == self.workers - 1 else []
        self._microbatches = int(self.options.get("microbatches", 4))
        self._rows = arguments.batch_size // self._microbatches
        return nn.Sequential(*first, _Block(), _Block(), *last)

    def forward_backward(self, model: nn.Module, inputs: torch.Tensor, labels: torch.Tensor) -> tuple[float, float]:
        """One step of this stage; loss and accuracy at the last one, else 0."""
        done, losses, hits = [], [], 0
        last = self.rank == self.workers - 1
        for part, wanted in zip(inputs.split(self._rows), labels.split(self._rows), strict=True):
            x = part
            if self.rank:
                x = torch.empty(len(part), WIDTH)
                self.receive(x, self.rank - 1)
                x.requires_grad_()
            y = model(x)
            if last:
                y, scores = nn.functional.cross_entropy(y, wanted) / self._microbatches, y
                losses.append(y.item())
                hits += int((scores.argmax(1) == wanted).sum())
            else:
                self.send(y.detach(), self.rank + 1)
            done.append((x, y))
        for x, y in reversed(done):
            if last:
                y.backward()
            else:
                gradient = torch.empty_like(y)
                self.receive(gradient, self.rank + 1)
                y.backward(gradient)
            if self.rank:
                assert x.grad is not None
                self.send(x.grad, self.rank - 1)
        return sum(losses), hits / len(labels) if last else 0.0

    def after_backward(self, model: nn.Module) -> None:
        """A stage's gradients are its own."""

    def truth(self, size: int) -> dict[str, Any]:
        activations = 4 * self._rows * WIDTH
        pairs = [
            group(f"stages {rank} and {rank + 1}", (rank, rank + 1), [("send", activations, 2 * self._microbatches)])
            for rank in range(self.workers - 1)
        ]
        parameters = models.parameters(nn.Linear(784, WIDTH)) + models.parameters(nn.Linear(WIDTH, models.CLASSES))
        parameters += 2 * self.workers * models.parameters(_Block())
        return {"topology": None, "groups": pairs, "replicas": False, **models.size(parameters)}


class _Copy(torch.autograd.Function):
    """The same forward; gradients are summed over the group (Megatron's f, Shoeybi et al. 2019)."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, program: "TensorData") -> torch.Tensor:
        ctx.program = program
        return x + 0

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        gradient = gradients[0].contiguous()
        ctx.program.sum_in_group(gradient)
        return gradient, None


class _Sum(torch.autograd.Function):
    """Summed over the group forward; the same gradient (Megatron's g)."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, program: "TensorData") -> torch.Tensor:
        total = x.contiguous().clone()
        program.sum_in_group(total)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return gradients[0], None


class _Split(nn.Module):
    """A block whose inner layer is divided over the workers of a tensor group."""

    def __init__(self, program: "TensorData") -> None:
        super().__init__()
        self.program = program
        self.inner = nn.Linear(WIDTH, 2 * WIDTH // program.tensor)
        self.outer = nn.Linear(2 * WIDTH // program.tensor, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        partial = self.outer(torch.relu(self.inner(_Copy.apply(x, self.program))))
        return x + _Sum.apply(partial, self.program)


class TensorData(Communication):
    """Tensor parallel inside groups of neighbours, data parallel between them. Option tensor: a group's workers (2).

    Each of two blocks has an all-reduce of activations in the forward and one in the backward pass; the gradients of
    each part are averaged by the workers that have the same part.
    """

    def __init__(self, recorder: Recorder, options: Options) -> None:
        super().__init__(recorder, options)
        self.tensor = int(options.get("tensor", 2))
        self._tensors = [list(range(i, i + self.tensor)) for i in range(0, self.workers, self.tensor)]
        self._datas = [list(range(i, self.workers, self.tensor)) for i in range(self.tensor)]
        groups = [dist.new_group(ranks) for ranks in self._tensors + self._datas]
        self._mine = groups[self.rank // self.tensor]
        self._data = groups[len(self._tensors) + self.rank % self.tensor]

    def sum_in_group(self, tensor: torch.Tensor) -> None:
        """All-reduce in this worker's tensor group."""
        with self.recorder.timed("allreduce", nbytes(tensor), "tensor"):
            dist.all_reduce(tensor, group=self._mine)

    def model(self, arguments: Any) -> nn.Module:
        self._batch = arguments.batch_size
        torch.manual_seed(models.SEED)
        first, last = nn.Linear(784, WIDTH), nn.Linear(WIDTH, models.CLASSES)
        torch.manual_seed(models.SEED + 1 + self.rank % self.tensor)
        return nn.Sequential(first, _Split(self), _Split(self), last)

    def data_rank(self) -> int:
        """Workers of a tensor group compute on the same batch."""
        return self.rank // self.tensor

    def after_backward(self, model: nn.Module) -> None:
        gradient = flat_gradient(model)
        with self.recorder.timed("allreduce", nbytes(gradient), "data"):
            dist.all_reduce(gradient, group=self._data)
        set_gradient(model, gradient / len(self._datas[0]))

    def truth(self, size: int) -> dict[str, Any]:
        activations = [("allreduce", 4 * self._batch * WIDTH, 4)]
        tensors = [group(f"tensor {n}", ranks, activations) for n, ranks in enumerate(self._tensors)]
        datas = [group(f"data {n}", ranks, [("allreduce", size, 1)]) for n, ranks in enumerate(self._datas)]
        whole = size // 4 + (self.tensor - 1) * 2 * models.parameters(_Split(self))
        return {"topology": None, "groups": tensors + datas, "replicas": False, **models.size(whole)}


class _AllToAll(torch.autograd.Function):
    """Row block n goes to worker n; in the backward pass the gradients go back."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, program: "Moe") -> torch.Tensor:
        ctx.program = program
        return program.exchange_rows(x)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return ctx.program.exchange_rows(gradients[0]), None


class _Experts(nn.Module):
    """An expert at each worker: rows go there and come back (Lepikhin et al. 2020, with the same number for each)."""

    def __init__(self, program: "Moe") -> None:
        super().__init__()
        self.program = program
        self.expert = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.ReLU(), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        arrived = _AllToAll.apply(x, self.program)
        return x + _AllToAll.apply(self.expert(arrived), self.program)


class Moe(Communication):
    """Mixture of experts: two all-to-alls forward and two backward a step; the layers that all have are all-reduced.

    The router is balanced: row r of a batch goes to expert r // (batch / workers).
    """

    def exchange_rows(self, x: torch.Tensor) -> torch.Tensor:
        """All-to-all of equal blocks of rows."""
        out = torch.empty_like(x)
        with self.recorder.timed("alltoall", nbytes(x), "workers"):
            dist.all_to_all_single(out, x.contiguous())
        return out

    def model(self, arguments: Any) -> nn.Module:
        self._batch = arguments.batch_size
        torch.manual_seed(models.SEED)
        first, last = nn.Linear(784, WIDTH), nn.Linear(WIDTH, models.CLASSES)
        torch.manual_seed(models.SEED + 1 + self.rank)
        self._shared = [first, last]
        return nn.Sequential(first, _Experts(self), last)

    def after_backward(self, model: nn.Module) -> None:
        shared = nn.ModuleList(self._shared)
        gradient = flat_gradient(shared)
        with self.recorder.timed("allreduce", nbytes(gradient), "shared"):
            dist.all_reduce(gradient)
        set_gradient(shared, gradient / self.workers)

    def truth(self, size: int) -> dict[str, Any]:
        shared = 4 * sum(models.parameters(layer) for layer in self._shared)
        collectives = [("alltoall", 4 * self._batch * WIDTH, 4), ("allreduce", shared, 1)]
        experts = self.workers * (size - shared) // 4
        groups = [group("workers", range(self.workers), collectives)]
        return {"topology": None, "groups": groups, "replicas": False, **models.size(shared // 4 + experts)}


class TwoRings(Ring):
    """Half of the gradient goes around one ring, half around another in the opposite order, at the same time; each ring
    is a process group of its own, with connections of its own."""

    def __init__(self, recorder: Recorder, options: Options) -> None:
        super().__init__(recorder, options)
        self._groups = [dist.new_group(list(range(self.workers))) for _ in range(2)]
        self._orders = [self.order, self.order[::-1]]

    def exchange(self, gradient: torch.Tensor) -> None:
        threads = [
            threading.Thread(target=self.around, args=(half, order, ring, f"ring {number}"))
            for number, (half, order, ring) in enumerate(
                zip(gradient.tensor_split(2), self._orders, self._groups, strict=True)
            )
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        gradient /= self.workers

    def truth(self, size: int) -> dict[str, Any]:
        halves = [4 * len(half) for half in torch.empty(size // 4).tensor_split(2)]
        rings = [
            {**group(f"ring {n}", range(self.workers), [("allreduce", half, 1)]), "ring_order": order}
            for n, (half, order) in enumerate(zip(halves, self._orders, strict=True))
        ]
        return {"topology": None, "groups": rings}


PATTERNS: dict[str, Any] = {
    "fsdp": Fsdp, "pipeline": Pipeline, "tensor_data": TensorData, "moe": Moe, "two_rings": TwoRings,
}  # fmt: skip
