"""Training with TensorFlow over gRPC: MultiWorkerMirroredStrategy (a ring), and ParameterServerStrategy with a chief.

Variables and gradients are TensorFlow's own, without Keras, whose version 3 does not train with these strategies.
"""

from __future__ import annotations

import json
import os
import platform
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from .logs import STEPS_PER_EPOCH, Recorder, write_truth
from .program_list import WIDTHS

_LEARNING_RATE = 0.05
_SEED = 1


def run(
    program: str, model: str, batch_size: int, steps: int, out: Path, pause_ms: float, compute: str, seed: int,
    options: dict[str, str],
) -> None:  # fmt: skip
    """One process of a program; a worker or server of tf_ps serves until it is ended."""
    if model not in WIDTHS or compute != "real":
        raise SystemExit(f"TensorFlow trains {', '.join(WIDTHS)} with compute = real, not {model} with {compute}")
    tf.config.threading.set_inter_op_parallelism_threads(2)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    role, number = _cluster(program)
    if program == "tf_ps" and role != "chief":
        server = tf.distribute.Server(
            tf.train.ClusterSpec(json.loads(os.environ["TF_CONFIG"])["cluster"]), role, number, protocol="grpc"
        )
        server.join()
    if program == "tf_ps" or number == 0:
        write_truth(out, _truth(program, WIDTHS[model], steps))
    recorder = Recorder(out, os.environ["LABEL"])
    batches = _Batches(batch_size, seed, int(os.environ["RANK"]))
    every, saves = int(options.get("checkpoint", 0)), program == "tf_ps" or number == 0
    checkpoints = _Checkpoints(every, saves, recorder)
    if program == "tf_ps":
        _parameter_server(WIDTHS[model], batches, steps, pause_ms, recorder, checkpoints)
    else:
        _mirrored(WIDTHS[model], batches, steps, pause_ms, recorder, checkpoints)


def _cluster(program: str) -> tuple[str, int]:
    """Set TF_CONFIG from the testbed's variables; this process' role and number."""
    port, workers = os.environ["MASTER_PORT"], int(os.environ["WORKERS"])
    hosts = [f"{host}:{port}" for host in os.environ["HOSTS"].split(",")]
    cluster = {"worker": hosts[:workers]}
    if program == "tf_ps":
        cluster |= {"ps": hosts[workers:-1], "chief": hosts[-1:]}
    rank = int(os.environ["RANK"])
    names = [(role, number) for role in ("worker", "ps", "chief") for number in range(len(cluster.get(role, ())))]
    role, number = names[rank]
    os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": role, "index": number}})
    return role, number


class _Batches:
    """A seeded source of batches, different on every worker."""

    def __init__(self, size: int, seed: int, rank: int) -> None:
        self._centres = np.random.default_rng(seed).standard_normal((10, 784))
        self._random = np.random.default_rng(seed + 1 + rank)
        self._size = size

    def draw(self) -> tuple[Any, Any]:
        labels = self._random.integers(10, size=self._size)
        noise = self._random.standard_normal((self._size, 784))
        return tf.constant(self._centres[labels] + 2 * noise, tf.float32), tf.constant(labels, tf.int32)


class _Checkpoints:
    """All variables, saved every so many steps by one process (option checkpoint), in a folder that all hosts see."""

    def __init__(self, every: int, saves: bool, recorder: Recorder) -> None:
        self._every, self._saves, self._recorder = every, saves, recorder
        self._manager: Any = None

    def load(self, variables: list[Any]) -> int:
        """Fill the variables from the last checkpoint, if there is one; how many steps they had been trained."""
        if not self._every:
            return 0
        begin = time.time()
        checkpoint = tf.train.Checkpoint(**{f"variable_{n}": variable for n, variable in enumerate(variables)})
        self._manager = tf.train.CheckpointManager(checkpoint, os.environ["CHECKPOINTS"], max_to_keep=1)
        last = self._manager.latest_checkpoint
        if last is None:
            return 0
        checkpoint.restore(last).assert_consumed()
        steps = int(last.rpartition("-")[2])
        self._recorder.note("restore", f"steps {steps}", begin)
        return steps

    def save(self, steps: int) -> None:
        """Save, where it is time to."""
        if self._every and self._saves and steps % self._every == 0:
            begin = time.time()
            self._manager.save(checkpoint_number=steps)
            self._recorder.note("checkpoint", f"steps {steps}", begin)


def _variables(widths: tuple[int, ...]) -> list[Any]:
    """Weights and biases, the same at every worker."""
    random = np.random.default_rng(_SEED)
    made = []
    for inputs, outputs in pairwise(widths):
        values = random.standard_normal((inputs, outputs)) / np.sqrt(inputs)
        made += [tf.Variable(values.astype("float32")), tf.Variable(tf.zeros(outputs))]
    return made


def _gradients(variables: list[Any], inputs: Any, labels: Any) -> tuple[Any, Any, list[Any]]:
    """Loss, accuracy and gradients of a batch."""
    with tf.GradientTape() as tape:
        x = inputs
        for place in range(0, len(variables), 2):
            x = tf.matmul(x, variables[place]) + variables[place + 1]
            x = tf.nn.relu(x) if place + 2 < len(variables) else x
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, x))
    hits = tf.reduce_mean(tf.cast(tf.argmax(x, 1, tf.int32) == labels, tf.float32))
    return loss, hits, tape.gradient(loss, variables)


def _mirrored(
    widths: tuple[int, ...], batches: _Batches, steps: int, pause_ms: float, recorder: Recorder,
    checkpoints: _Checkpoints,
) -> None:  # fmt: skip
    ring = tf.distribute.experimental.CommunicationOptions(
        implementation=tf.distribute.experimental.CommunicationImplementation.RING
    )
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=ring)
    with strategy.scope():
        variables = _variables(widths)
        first = checkpoints.load(variables)

    def exchange(gradients: list[Any]) -> None:
        mean = tf.distribute.ReduceOp.MEAN
        averages = strategy.extended.batch_reduce_to(mean, list(zip(gradients, variables, strict=True)), options=ring)
        for variable, average in zip(variables, averages, strict=True):
            strategy.extended.update(variable, lambda v, g: v.assign_sub(_LEARNING_RATE * g), args=(average,))

    compute = tf.function(lambda x, y: strategy.run(lambda a, b: _gradients(variables, a, b), args=(x, y)))
    reduce = tf.function(exchange)
    size = 4 * _parameters(widths)
    for step in range(first, steps):
        recorder.begin_step()
        time.sleep(pause_ms / 1e3)
        loss, hits, gradients = compute(*batches.draw())
        with recorder.timed("allreduce", size):
            reduce(gradients)
        recorder.end_step(float(loss), float(hits))
        checkpoints.save(step + 1)


def _parameter_server(
    widths: tuple[int, ...], batches: _Batches, steps: int, pause_ms: float, recorder: Recorder,
    checkpoints: _Checkpoints,
) -> None:  # fmt: skip
    """The chief's loop: in each step every worker takes the variables, and sends its gradients, once."""
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        variables = _variables(widths)
        first = checkpoints.load(variables)

    @tf.function
    def step(inputs: Any, labels: Any) -> Any:
        loss, hits, gradients = _gradients(variables, inputs, labels)
        for variable, gradient in zip(variables, gradients, strict=True):
            variable.assign_sub(_LEARNING_RATE * gradient)
        return loss, hits

    workers = int(os.environ["WORKERS"])
    for number in range(first, steps):
        recorder.begin_step()
        time.sleep(pause_ms / 1e3)
        results = [coordinator.schedule(step, args=batches.draw()) for _ in range(workers)]
        with recorder.timed("send", 2 * workers * 4 * _parameters(widths), "workers and servers"):
            coordinator.join()
        values = np.mean([[float(part) for part in result.fetch()] for result in results], axis=0)
        recorder.end_step(*values)
        checkpoints.save(number + 1)


def _parameters(widths: tuple[int, ...]) -> int:
    return sum((inputs + 1) * outputs for inputs, outputs in pairwise(widths))


def _truth(program: str, widths: tuple[int, ...], steps: int) -> dict[str, Any]:
    workers, hosts = int(os.environ["WORKERS"]), len(os.environ["HOSTS"].split(","))
    size = 4 * _parameters(widths)
    mirrored = program == "tf_mirrored"
    servers = 0 if mirrored else hosts - workers - 1
    roles = {f"ps-{n}": "parameter_server" for n in range(1, servers + 1)}
    topology = "ring" if mirrored else "sharded_parameter_server" if servers > 1 else "parameter_server"
    kinds = [("allreduce", 1)] if mirrored else [("send", workers), ("recv", workers)]
    return {
        "topology": topology,
        "ring_order": list(range(workers)) if mirrored else None,
        "roles": roles if mirrored else {**roles, "chief-1": "chief"},
        "groups": [
            {
                "name": "workers" if mirrored else "push and pull",
                "ranks": list(range(workers + servers)),
                "collectives": [{"kind": kind, "bytes": size, "per_step": count} for kind, count in kinds],
            }
        ],
        "model_params": size // 4,
        "model_bytes": size,
        "epochs": steps // STEPS_PER_EPOCH or None,
        "versions": {"python": platform.python_version(), "tensorflow": tf.__version__},
    }
