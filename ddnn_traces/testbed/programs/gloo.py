"""Data-parallel training with PyTorch over gloo: DistributedDataParallel, and exchanges written with send and recv.

Each exchange replaces a worker's flat gradient by the average over all workers. The laws are those of
ddnn_traces/traffic/collectives.py; S is the gradient's bytes, N the workers.
"""

# no `from __future__ import annotations`: PyTorch compares the annotations of a communication hook as types

import os
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from . import models, slowness
from .logs import Recorder
from .program_list import ALGORITHMS

#: A worker whose peer is gone ends after this time.
TIMEOUT = timedelta(seconds=60)
Options = dict[str, str]


class Communication:
    """One worker's part in the exchange of gradients. Subclasses give `exchange`, or all of `after_backward`."""

    topology: str | None = None

    def __init__(self, recorder: Recorder, options: Options) -> None:
        self.join()
        self.recorder, self.options = recorder, options
        self.rank, self.hosts = dist.get_rank(), dist.get_world_size()
        self.workers = int(os.environ.get("WORKERS", self.hosts))

    def join(self) -> None:
        """Join the process group."""
        dist.init_process_group("gloo", timeout=TIMEOUT)

    def model(self, arguments: Any) -> nn.Module:
        """The model, with the same first weights on every worker; arguments: training.Arguments."""
        return models.build(arguments.model, arguments.compute, arguments.options)

    def wrap(self, model: nn.Module) -> nn.Module:
        """The model as it is trained."""
        return model

    def data_rank(self) -> int:
        """Which of the batches of a step this worker has."""
        return self.rank

    def forward_backward(self, model: nn.Module, inputs: torch.Tensor, labels: torch.Tensor) -> tuple[float, float]:
        """Compute the gradients of a batch; loss and accuracy."""
        scores = model(inputs)
        loss = nn.functional.cross_entropy(scores, labels)
        loss.backward()
        return loss.item(), (scores.argmax(1) == labels).float().mean().item()

    def after_backward(self, model: nn.Module) -> None:
        """Replace the gradients by their averages."""
        gradient = flat_gradient(model)
        self.exchange(gradient)
        set_gradient(model, gradient)

    def exchange(self, gradient: torch.Tensor) -> None:
        """Replace a flat gradient by the average."""
        raise NotImplementedError

    def after_step(self, model: nn.Module) -> None:
        """What follows the update."""

    def serve(self, size: int, steps: int) -> None:
        """A parameter server's whole work; size: parameters of the model."""
        raise NotImplementedError

    def truth(self, size: int) -> dict[str, Any]:
        """Groups with their collectives a step, and the ring's order, for a model of `size` bytes."""
        ranks = list(range(self.workers))
        return {"topology": self.topology, "groups": [group("workers", ranks, [("allreduce", size, 1)])]}

    def versions(self) -> dict[str, str]:
        """What communicates, beside PyTorch."""
        return {}

    def close(self) -> None:
        """Leave when all have come here."""
        dist.barrier()
        dist.destroy_process_group()

    # --- transfers

    def send(self, tensor: torch.Tensor, to: int, tag: int = 0) -> None:
        """Send, and return when it is sent."""
        with self.recorder.timed("send", nbytes(tensor), f"to {to}"):
            dist.send(tensor, to, tag=tag)

    def receive(self, tensor: torch.Tensor, source: int, tag: int = 0) -> None:
        """Receive into the tensor."""
        with self.recorder.timed("recv", nbytes(tensor), f"from {source}"):
            dist.recv(tensor, source, tag=tag)

    def swap(
        self, out: torch.Tensor, to: int, into: torch.Tensor, source: int, ring: Any = None, name: str = ""
    ) -> None:
        """Send and receive at the same time. ring: the process group; None: all workers."""
        with self.recorder.timed("send", nbytes(out), name or f"to {to}"):
            request = dist.isend(out, to, group=ring)
            dist.recv(into, source, group=ring)
            request.wait()

    def receive_all(self, sources: Sequence[int], like: torch.Tensor) -> list[torch.Tensor]:
        """A tensor of each source, received at the same time."""
        tensors = [torch.empty_like(like) for _ in sources]
        with self.recorder.timed("recv", nbytes(like) * len(sources), "gather"):
            for request in [dist.irecv(tensor, rank) for rank, tensor in zip(sources, tensors, strict=True)]:
                request.wait()
        return tensors

    def send_all(self, tensor: torch.Tensor, to: Sequence[int]) -> None:
        """The same tensor to several, at the same time."""
        with self.recorder.timed("send", nbytes(tensor) * len(to), "scatter"):
            for request in [dist.isend(tensor, rank) for rank in to]:
                request.wait()


def group(name: str, ranks: Sequence[int], collectives: Sequence[tuple[str, int, int]]) -> dict[str, Any]:
    """A group in truth.json; collectives: kind, bytes and how many a step."""
    listed = [{"kind": kind, "bytes": size, "per_step": count} for kind, size, count in collectives]
    return {"name": name, "ranks": list(ranks), "collectives": listed}


def nbytes(tensor: torch.Tensor) -> int:
    """Bytes of a tensor's values."""
    return tensor.numel() * tensor.element_size()


def flat_gradient(model: nn.Module) -> torch.Tensor:
    """All gradients as one vector."""
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None])


def set_gradient(model: nn.Module, flat: torch.Tensor) -> None:
    """Write a vector into the gradients."""
    wanted = [parameter for parameter in model.parameters() if parameter.grad is not None]
    parts = flat.split([parameter.numel() for parameter in wanted])
    for parameter, part in zip(wanted, parts, strict=True):
        parameter.grad.copy_(part.view_as(parameter))


class Ddp(Communication):
    """DistributedDataParallel, which sums buckets during the backward pass; gloo's all-reduce is a ring."""

    topology = "ring"

    def wrap(self, model: nn.Module) -> nn.Module:
        wrapped = nn.parallel.DistributedDataParallel(model)
        wrapped.register_comm_hook(None, self._reduce)
        dist.barrier()  # the broadcast of the first weights is over before step 0
        return wrapped

    def after_backward(self, model: nn.Module) -> None:
        """All buckets are summed when the backward pass returns."""

    def _reduce(self, _: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        begin, size, name = self.recorder.mark(), nbytes(bucket.buffer()), f"bucket {bucket.index()}"

        def average(future: torch.futures.Future[Any]) -> torch.Tensor:
            self.recorder.add("allreduce", begin, self.recorder.mark(), size, name)
            summed: torch.Tensor = future.value()[0]
            return summed / self.workers

        return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(average)

    def truth(self, size: int) -> dict[str, Any]:
        # gloo sends from rank r to r - 1
        order = [0, *range(self.workers - 1, 0, -1)]
        return {**super().truth(size), "ring_order": order}


class Elastic(Ddp):
    """The same under torchrun: of as many workers as there are, whose number changes when one is lost or comes back."""

    def __init__(self, recorder: Recorder, options: Options) -> None:
        super().__init__(recorder, options)
        self.workers = self.hosts


class Ring(Communication):
    """2(N-1) rounds of S/N along a cycle: reduce-scatter, then all-gather. Option order: ranks, 0,2,1,3."""

    topology = "ring"

    def __init__(self, recorder: Recorder, options: Options) -> None:
        super().__init__(recorder, options)
        named = options.get("order")
        self.order = [int(rank) for rank in named.split(",")] if named else list(range(self.workers))

    def exchange(self, gradient: torch.Tensor) -> None:
        self.around(gradient, self.order)
        gradient /= self.workers

    def around(self, gradient: torch.Tensor, order: list[int], ring: Any = None, name: str = "") -> None:
        """Sum a vector in place, in the order of the ring."""
        workers, place = len(order), order.index(self.rank)
        following, before = order[(place + 1) % workers], order[place - 1]
        chunks = list(gradient.tensor_split(workers))
        for turn in range(workers - 1):
            received = torch.empty_like(chunks[(place - turn - 1) % workers])
            self.swap(chunks[(place - turn) % workers], following, received, before, ring, name)
            chunks[(place - turn - 1) % workers] += received
        for turn in range(workers - 1):
            into = chunks[(place - turn) % workers]
            self.swap(chunks[(place + 1 - turn) % workers], following, into, before, ring, name)

    def truth(self, size: int) -> dict[str, Any]:
        return {**super().truth(size), "ring_order": self.order}


class HierarchicalRing(Ring):
    """The ranks of a host send to its first one, the first ones sum along a ring, and each sends the sum to its host's
    (as Horovod's hierarchical all-reduce between hosts, with one ring)."""

    topology = "hierarchical_ring"

    def exchange(self, gradient: torch.Tensor) -> None:
        ranks = int(os.environ["RANKS_PER_HOST"])
        first = self.rank - self.rank % ranks
        if self.rank != first:
            self.send(gradient, first)
            self.receive(gradient, first)
            return
        others = range(first + 1, first + ranks)
        for received in self.receive_all(others, gradient):
            gradient += received
        self.around(gradient, list(range(0, self.workers, ranks)))
        gradient /= self.workers
        self.send_all(gradient, others)


class Tree(Communication):
    """Sums go up a tree and the average down: each edge carries S in both directions.

    Option shape: binomial (default) or heap, in which rank r's parent is (r - 1) // 2.
    """

    topology = "tree"

    def parent(self, rank: int) -> int:
        """The parent of a rank that is not 0."""
        return (rank - 1) // 2 if self.options.get("shape") == "heap" else rank & (rank - 1)

    def exchange(self, gradient: torch.Tensor) -> None:
        children = [rank for rank in range(1, self.workers) if self.parent(rank) == self.rank]
        for received in self.receive_all(children, gradient) if children else ():
            gradient += received
        if self.rank:
            self.send(gradient, self.parent(self.rank))
            self.receive(gradient, self.parent(self.rank))
        else:
            gradient /= self.workers
        if children:
            self.send_all(gradient, children)


class Star(Tree):
    """A tree in which rank 0 is the parent of all."""

    topology = "star"

    def parent(self, rank: int) -> int:
        return 0


class BinaryTreeStar(Tree):
    """Stars of `group` workers whose centres are a binary tree (KungFu's BINARY_TREE_STAR). Option group, default 2."""

    topology = "binary_tree_star"

    def parent(self, rank: int) -> int:
        size = int(self.options.get("group", 2))
        centre, inside = divmod(rank, size)
        return centre * size if inside else (centre - 1) // 2 * size


class Clique(Communication):
    """Every worker sends its whole gradient to every other: (N-1)*S a worker (KungFu's CLIQUE without sharding)."""

    topology = "clique"

    def exchange(self, gradient: torch.Tensor) -> None:
        others = [rank for rank in range(self.workers) if rank != self.rank]
        own = gradient.clone()
        received = [torch.empty_like(gradient) for _ in others]
        with self.recorder.timed("send", nbytes(own) * len(others), "all"):
            requests = [dist.isend(own, rank) for rank in others]
            requests += [dist.irecv(tensor, rank) for rank, tensor in zip(others, received, strict=True)]
            for request in requests:
                request.wait()
        # summed in the order of ranks, so that all workers have the same result
        parts = [*received[: self.rank], own, *received[self.rank :]]
        gradient.copy_(torch.stack(parts).sum(0) / self.workers)


class HalvingDoubling(Communication):
    """Reduce-scatter by halving, all-gather by doubling (Thakur et al. 2005): 2(N-1)/N*S a worker, N a power of 2."""

    topology = "halving_doubling"

    def exchange(self, gradient: torch.Tensor) -> None:
        begin, end, halves = 0, len(gradient), []
        distance = self.workers // 2
        while distance:
            peer, middle = self.rank ^ distance, (begin + end) // 2
            low, high = (begin, middle), (middle, end)
            keep, give = (low, high) if self.rank < peer else (high, low)
            received = torch.empty_like(gradient[slice(*keep)])
            self.swap(gradient[slice(*give)].contiguous(), peer, received, peer)
            gradient[slice(*keep)] += received
            halves.append((peer, keep, give))
            begin, end = keep
            distance //= 2
        gradient[begin:end] /= self.workers
        for peer, keep, give in reversed(halves):
            received = torch.empty_like(gradient[slice(*give)])
            self.swap(gradient[slice(*keep)].contiguous(), peer, received, peer)
            gradient[slice(*give)] = received


class ParameterServer(Communication):
    """Workers send gradients to servers, each of which has a shard, and get the average: S up and S down a worker."""

    topology = "parameter_server"

    def shards(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """The part of each server."""
        return list(flat.tensor_split(self.hosts - self.workers))

    def exchange(self, gradient: torch.Tensor) -> None:
        servers = range(self.workers, self.hosts)
        shards = self.shards(gradient)
        with self.recorder.timed("send", nbytes(gradient), "push"):
            for request in [dist.isend(shard, rank) for rank, shard in zip(servers, shards, strict=True)]:
                request.wait()
        with self.recorder.timed("recv", nbytes(gradient), "pull"):
            for request in [dist.irecv(shard, rank) for rank, shard in zip(servers, shards, strict=True)]:
                request.wait()

    def serve(self, size: int, steps: int) -> None:
        own = self.shards(torch.zeros(size))[self.rank - self.workers]
        for step in range(steps):
            self.recorder.begin_step()
            received = self.receive_all(range(self.workers), own)
            slowness.sleep(step)
            self.send_all(torch.stack(received).sum(0) / self.workers, range(self.workers))
            self.recorder.end_step()

    def truth(self, size: int) -> dict[str, Any]:
        servers = self.hosts - self.workers
        pushed = group("push and pull", range(self.hosts), [("send", size, self.workers), ("recv", size, self.workers)])
        topology = "sharded_parameter_server" if servers > 1 else self.topology
        return {"topology": topology, "groups": [pushed]}


class AsyncParameterServer(ParameterServer):
    """The same without waiting for the others: a server adds each gradient to its weights and returns these at once.

    A worker gets the weights before its first step, as in Downpour SGD (Dean et al. 2012).
    """

    def serve(self, size: int, steps: int) -> None:
        self._weights = self.shards(torch.zeros(size))[self.rank - self.workers].clone()
        self._lock = threading.Lock()
        threads = [threading.Thread(target=self._serve_one, args=(rank, steps)) for rank in range(self.workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _serve_one(self, rank: int, steps: int) -> None:
        received = torch.empty_like(self._weights)
        dist.send(self._weights, rank)
        for _ in range(steps):
            self.receive(received, rank)
            with self._lock:
                self._weights += received / self.workers
                answer = self._weights.clone()
            self.send(answer, rank)

    def wrap(self, model: nn.Module) -> nn.Module:
        weights = torch.empty(models.parameters(model))
        for rank, shard in zip(range(self.workers, self.hosts), self.shards(weights), strict=True):
            dist.recv(shard, rank)
        return model

    def after_backward(self, model: nn.Module) -> None:
        # the server's weights are the sum of gradients since the start; what is new in them is the gradient to apply
        gradient = flat_gradient(model)
        self.exchange(gradient)
        before = getattr(self, "_known", torch.zeros_like(gradient))
        self._known = gradient.clone()
        set_gradient(model, gradient - before)


class PairAveraging(Communication):
    """After its update a worker asks a random other one for its model, and takes the mean (KungFu's pair averaging).

    Nobody waits for a step of another: a thread answers.
    """

    topology = "pair_averaging"
    _ASK, _ANSWER = 1, 2

    def wrap(self, model: nn.Module) -> nn.Module:
        self._random = torch.Generator().manual_seed(100 + self.rank)
        self._lock = threading.Lock()
        self._offered = nn.utils.parameters_to_vector(model.parameters()).detach().clone()
        self._thread = threading.Thread(target=self._answer, daemon=True)
        self._thread.start()
        return model

    def after_backward(self, model: nn.Module) -> None:
        """Gradients stay a worker's own."""

    def after_step(self, model: nn.Module) -> None:
        own = nn.utils.parameters_to_vector(model.parameters()).detach()
        others = [rank for rank in range(self.workers) if rank != self.rank]
        peer = others[int(torch.randint(len(others), (1,), generator=self._random))]
        received = torch.empty_like(own)
        with self.recorder.timed("recv", nbytes(own), f"from {peer}"):
            dist.send(torch.ones(1), peer, tag=self._ASK)
            dist.recv(received, peer, tag=self._ANSWER)
        mean = (own + received) / 2
        nn.utils.vector_to_parameters(mean, model.parameters())
        with self._lock:
            self._offered = mean.clone()

    def _answer(self) -> None:
        """Answer until every other worker has said that it asks no more."""
        asking, question = self.workers - 1, torch.empty(1)
        while asking:
            source = dist.recv(question, tag=self._ASK)
            if not question.item():
                asking -= 1
                continue
            with self._lock:
                offered = self._offered.clone()
            dist.send(offered, source, tag=self._ANSWER)

    def close(self) -> None:
        for rank in range(self.workers):
            if rank != self.rank:
                dist.send(torch.zeros(1), rank, tag=self._ASK)
        self._thread.join()
        super().close()

    def truth(self, size: int) -> dict[str, Any]:
        return {"topology": self.topology, "groups": [group("workers", range(self.workers), [("recv", size, 1)])]}


class _ByMpirun(Communication):
    """An all-reduce whose algorithm the option algorithm chooses, see program_list.ALGORITHMS."""

    def truth(self, size: int) -> dict[str, Any]:
        _, topology = ALGORITHMS[self.options.get("algorithm", "ring")]
        order = list(range(self.workers)) if topology == "ring" else None
        return {**super().truth(size), "topology": topology, "ring_order": order}


class Mpi(_ByMpirun):
    """MPI_Allreduce in place of one flat vector, through mpi4py."""

    def __init__(self, recorder: Recorder, options: Options) -> None:
        from mpi4py import MPI

        self._mpi, self._world = MPI, MPI.COMM_WORLD
        self.recorder, self.options = recorder, options
        self.rank, self.hosts = self._world.Get_rank(), self._world.Get_size()
        self.workers = self.hosts

    def exchange(self, gradient: torch.Tensor) -> None:
        with self.recorder.timed("allreduce", nbytes(gradient)):
            self._world.Allreduce(self._mpi.IN_PLACE, gradient.numpy())
        gradient /= self.workers

    def versions(self) -> dict[str, str]:
        import mpi4py

        return {"mpi": self._mpi.Get_library_version().split(",")[0], "mpi4py": mpi4py.__version__}

    def close(self) -> None:
        self._world.Barrier()
        self._mpi.Finalize()


class Horovod(_ByMpirun):
    """Horovod's all-reduce of each parameter's gradient, fused as it does, by MPI."""

    def __init__(self, recorder: Recorder, options: Options) -> None:
        import horovod
        import horovod.torch as hvd

        hvd.init()
        self._hvd, self._version = hvd, horovod.__version__
        self.recorder, self.options = recorder, options
        self.rank, self.hosts = hvd.rank(), hvd.size()
        self.workers = self.hosts

    def after_backward(self, model: nn.Module) -> None:
        gradients = [(name, one.grad) for name, one in model.named_parameters() if one.grad is not None]
        with self.recorder.timed("allreduce", sum(nbytes(gradient) for _, gradient in gradients)):
            started = [self._hvd.allreduce_async_(gradient, name=name) for name, gradient in gradients]
            for one in started:
                self._hvd.synchronize(one)

    def versions(self) -> dict[str, str]:
        return {"horovod": self._version}

    def close(self) -> None:
        self._hvd.barrier()
        self._hvd.shutdown()


COMMUNICATIONS: dict[str, Callable[[Recorder, Options], Communication]] = {
    "ddp": Ddp, "elastic": Elastic, "ring": Ring, "hierarchical_ring": HierarchicalRing, "tree": Tree, "star": Star,
    "binary_tree_star": BinaryTreeStar, "clique": Clique, "halving_doubling": HalvingDoubling, "ps": ParameterServer,
    "ps_async": AsyncParameterServer, "pair_averaging": PairAveraging, "mpi": Mpi, "horovod": Horovod,
}  # fmt: skip
