"""The same training on GPUs over NCCL: all-reduce, DistributedDataParallel, sharded, pipeline, tensor x data, experts.

One GPU is enough for all hosts of a run: NCCL takes processes with different NCCL_HOSTID for hosts of a GPU each.
"""

import sys
import time
from typing import Any

import torch
import torch.distributed as dist

from . import patterns
from .gloo import TIMEOUT, Communication, Ddp, nbytes
from .logs import HostClock

_NEEDS = """programs on NCCL need an NVIDIA GPU, one for all hosts or one for each, and a PyTorch with CUDA and NCCL: \
PyTorch {version} here {sees}. Give another Python (--python nccl=PATH), or a machine with a GPU; the programs without \
nccl_ do the same on CPUs over gloo"""


def missing() -> str:
    """What is not here and needed, in words; empty: nothing."""
    if not torch.cuda.is_available():
        return _NEEDS.format(version=torch.__version__, sees="sees no GPU")
    return "" if dist.is_nccl_available() else _NEEDS.format(version=torch.__version__, sees="has no NCCL")


def take_gpu() -> None:
    """Let new tensors be on the first GPU. Ends the program, with what it needs, where there is none."""
    if problem := missing():
        print(problem, file=sys.stderr)
        sys.exit(3)
    torch.cuda.set_device(0)
    torch.set_default_device("cuda")


class GpuClock(HostClock):
    """When the GPU comes to a place of the program, by CUDA events: nothing waits for them within the step."""

    def start(self) -> None:
        torch.cuda.synchronize()
        self._first = self.mark()
        self._first.synchronize()
        self._begin = time.time()

    def mark(self) -> Any:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds(self, mark: Any) -> float:
        return self._begin + self._first.elapsed_time(mark) / 1e3

    def settle(self) -> None:
        torch.cuda.synchronize()


class _OnGpu(Communication):
    """A process on a GPU."""

    def join(self) -> None:
        dist.init_process_group("nccl", timeout=TIMEOUT, device_id=torch.device("cuda", 0))

    def versions(self) -> dict[str, str]:
        return {
            "nccl": ".".join(map(str, torch.cuda.nccl.version())), "cuda": str(torch.version.cuda),
            "gpu": torch.cuda.get_device_name(), **super().versions(),
        }  # fmt: skip


class _DataParallel(_OnGpu):
    """Option algo: NCCL's ring, or its double binary tree, which is no topology of the tables."""

    def truth(self, size: int) -> dict[str, Any]:
        topology = None if self.options.get("algo") == "tree" else "ring"
        return {**Communication.truth(self, size), "topology": topology}


class AllReduce(_DataParallel):
    """The whole gradient in one all-reduce after the backward pass."""

    def exchange(self, gradient: torch.Tensor) -> None:
        with self.recorder.timed("allreduce", nbytes(gradient), "workers"):
            dist.all_reduce(gradient)
        gradient /= self.workers


class NcclDdp(_DataParallel, Ddp):
    """DistributedDataParallel."""


class NcclFsdp(_OnGpu, patterns.Fsdp):
    """Fully sharded data parallel."""


class NcclPipeline(_OnGpu, patterns.Pipeline):
    """Stages with micro-batches."""


class NcclTensorData(_OnGpu, patterns.TensorData):
    """Tensor parallel inside groups, data parallel between them."""


class NcclMoe(_OnGpu, patterns.Moe):
    """Mixture of experts."""


ON_GPU: dict[str, Any] = {
    "nccl_allreduce": AllReduce, "nccl_ddp": NcclDdp, "nccl_fsdp": NcclFsdp, "nccl_pipeline": NcclPipeline,
    "nccl_tensor_data": NcclTensorData, "nccl_moe": NcclMoe,
}  # fmt: skip
