"""One worker of a small data-parallel training on the CPU, with the logs that the sample runs carry.

make_capture.py starts it once a worker; the address of the first worker, the rank and the number of workers come from
the environment (MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE), or from MPI. The data are synthetic and seeded: ten
classes, each a random picture with noise. How gradients are summed is the one thing that differs between the programs:

    ddp     PyTorch DistributedDataParallel over gloo, which reduces in a ring
    star    PyTorch send and recv over gloo: worker 1 collects, averages and sends back
    mpi     MPI_Allreduce through mpi4py on one flat float32 vector
"""

import argparse
import os
import time
from itertools import pairwise
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WIDTHS = {"mlp1": (784, 256, 128, 10), "mlp4": (784, 640, 640, 10)}
STEPS_PER_EPOCH = 10
PAUSE_S = 0.05  # stands in for heavier computation
SEED = 1


class Gloo:
    """The process group that both PyTorch programs join."""

    def __init__(self) -> None:
        dist.init_process_group("gloo")
        self.rank, self.workers = dist.get_rank(), dist.get_world_size()

    def close(self) -> None:
        dist.barrier()
        dist.destroy_process_group()
        # A gloo thread that asks for the interpreter while it shuts down aborts the process, so leave without that.
        os._exit(0)


class Ddp(Gloo):
    """DDP averages the gradients bucket by bucket during the backward pass; a hook notes when."""

    communicates = False

    def wrap(self, model: nn.Module) -> nn.Module:
        wrapped = DistributedDataParallel(model)
        wrapped.register_comm_hook(None, self._reduce_bucket)
        dist.barrier()  # the broadcast of the first weights is over before step 0
        return wrapped

    def after_backward(self, model: nn.Module) -> None:
        # The backward pass returns only after all buckets, so the next call of the hook begins the next step.
        self.communicates = False

    def _reduce_bucket(self, _state: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        if not self.communicates:
            self.comm_begin, self.communicates = time.time(), True
        return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(self._average)

    def _average(self, future: torch.futures.Future) -> torch.Tensor:
        self.comm_end = time.time()
        return future.value()[0] / self.workers


class Star(Gloo):
    """Worker 1 receives every gradient, averages, and sends the average to each worker."""

    def wrap(self, model: nn.Module) -> nn.Module:
        return model

    def after_backward(self, model: nn.Module) -> None:
        gradient = flat_gradient(model)
        self.comm_begin = time.time()
        if self.rank == 0:
            self._serve(gradient)
        else:
            dist.send(gradient, 0)
            dist.recv(gradient, 0)
        self.comm_end = time.time()
        set_gradient(model, gradient)

    def _serve(self, gradient: torch.Tensor) -> None:
        others = [torch.empty_like(gradient) for _ in range(1, self.workers)]
        for request in [dist.irecv(other, rank) for rank, other in enumerate(others, 1)]:
            request.wait()
        gradient.add_(sum(others)).div_(self.workers)
        for request in [dist.isend(gradient, rank) for rank in range(1, self.workers)]:
            request.wait()


class Mpi:
    """All workers sum one flat vector in place with MPI_Allreduce."""

    def __init__(self) -> None:
        from mpi4py import MPI

        self.world, self.in_place = MPI.COMM_WORLD, MPI.IN_PLACE
        self.rank, self.workers = self.world.Get_rank(), self.world.Get_size()

    def wrap(self, model: nn.Module) -> nn.Module:
        return model

    def after_backward(self, model: nn.Module) -> None:
        gradient = flat_gradient(model)
        self.comm_begin = time.time()
        self.world.Allreduce(self.in_place, gradient.numpy())
        self.comm_end = time.time()
        set_gradient(model, gradient.div_(self.workers))

    def close(self) -> None:
        self.world.Barrier()


PROGRAMS = {"ddp": Ddp, "star": Star, "mpi": Mpi}


def mlp(widths: tuple[int, ...]) -> nn.Sequential:
    """A multi-layer perceptron with ReLU between its layers; the same weights on every worker."""
    torch.manual_seed(SEED)
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def parameters(widths: tuple[int, ...]) -> int:
    """How many trainable numbers mlp(widths) has."""
    return sum((inputs + 1) * outputs for inputs, outputs in pairwise(widths))


def flat_gradient(model: nn.Module) -> torch.Tensor:
    """All gradients in one vector, in the order of the parameters."""
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def set_gradient(model: nn.Module, flat: torch.Tensor) -> None:
    """The opposite of flat_gradient."""
    sizes = [parameter.numel() for parameter in model.parameters()]
    for parameter, part in zip(model.parameters(), flat.split(sizes), strict=True):
        parameter.grad.copy_(part.view_as(parameter))


class Batches:
    """A seeded source of batches, different on every worker."""

    def __init__(self, inputs: int, classes: int, batch_size: int, rank: int) -> None:
        self.centres = torch.randn(classes, inputs, generator=torch.Generator().manual_seed(SEED))
        self.random = torch.Generator().manual_seed(SEED + 1 + rank)
        self.batch_size = batch_size

    def draw(self) -> tuple[torch.Tensor, torch.Tensor]:
        labels = torch.randint(len(self.centres), (self.batch_size,), generator=self.random)
        noise = torch.randn(self.batch_size, self.centres.shape[1], generator=self.random)
        return self.centres[labels] + 2 * noise, labels


def train(program: Ddp | Star | Mpi, widths: tuple[int, ...], batch_size: int, steps: int, out: Path) -> None:
    """Train for `steps` steps and write this worker's logs to the folder `out`."""
    model = program.wrap(mlp(widths))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    batches = Batches(widths[0], widths[-1], batch_size, program.rank)
    history, phases = [], []
    for _ in range(steps):
        begin = time.time()
        time.sleep(PAUSE_S)
        inputs, labels = batches.draw()
        optimizer.zero_grad(set_to_none=False)
        scores = model(inputs)
        loss = nn.functional.cross_entropy(scores, labels)
        loss.backward()
        program.after_backward(model)
        optimizer.step()
        end = time.time()
        accuracy = (scores.argmax(1) == labels).float().mean().item()
        history.append((end, loss.item(), accuracy))
        phases.append((begin, program.comm_begin, program.comm_end, end))
    write_logs(out, program.rank + 1, history, phases)


def write_logs(out: Path, worker: int, history: list[tuple[float, ...]], phases: list[tuple[float, ...]]) -> None:
    """Write train_history-worker-N.log and phases-worker-N.csv, and for worker 1 train_history.log too."""
    text = "\n".join(["Type,ID,Timestamp,Loss,Accuracy", *history_lines(history)]) + "\n"
    (out / f"train_history-worker-{worker}.log").write_text(text)
    if worker == 1:
        (out / "train_history.log").write_text(text)
    lines = [",".join([str(step), *(f"{value:.6f}" for value in row)]) for step, row in enumerate(phases)]
    header = "step,t_begin,t_comm_begin,t_comm_end,t_end"
    (out / f"phases-worker-{worker}.csv").write_text("\n".join([header, *lines]) + "\n")


def history_lines(history: list[tuple[float, ...]]) -> list[str]:
    """A line a batch, and after each epoch its last time, its mean loss and its mean accuracy."""
    lines = []
    for batch, row in enumerate(history):
        lines.append(history_line("batch", batch, row))
        epoch, position = divmod(batch, STEPS_PER_EPOCH)
        if position == STEPS_PER_EPOCH - 1:
            rows = history[epoch * STEPS_PER_EPOCH : batch + 1]
            means = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
            lines.append(history_line("epoch", epoch, (row[0], *means[1:])))
    return lines


def history_line(kind: str, number: int, row: tuple[float, ...]) -> str:
    return ",".join([kind, str(number), *(f"{value:.6f}" for value in row)])


def main() -> None:
    parser = argparse.ArgumentParser(description="One worker of a small data-parallel training.")
    parser.add_argument("--program", choices=PROGRAMS, required=True)
    parser.add_argument("--model", choices=WIDTHS, required=True)
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    program = PROGRAMS[arguments.program]()
    train(program, WIDTHS[arguments.model], arguments.batch_size, arguments.steps, arguments.out)
    program.close()


if __name__ == "__main__":
    main()
