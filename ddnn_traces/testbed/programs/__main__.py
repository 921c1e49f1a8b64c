"""A training program of a host: `python -m programs PROGRAM --model M --batch-size B --steps N --out FOLDER ...`.

Ranks and addresses come from the environment (RANK, WORLD_SIZE, WORKERS, RANKS_PER_HOST, LOCAL_RANK, MASTER_ADDR,
MASTER_PORT, LABEL, HOSTS), of MPI programs from mpirun. Of several ranks on a host the first one writes the logs.
docs/testbed.md lists the programs. Exit code 0 only when all steps are done; 3 without the framework.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from .program_list import DATA, PROGRAMS, Sizes


def main() -> None:
    """Parse, and run the program's module, which imports the framework."""
    parser = argparse.ArgumentParser(prog="programs")
    parser.add_argument("program", choices=PROGRAMS)
    parser.add_argument("--model", default="mlp1")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--warm-up", type=int, default=0)
    parser.add_argument("--pause-ms", type=float, default=50)
    parser.add_argument("--compute", default="real")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data", choices=DATA, default=DATA[0])
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--trace", action="append", default=[])
    given = vars(parser.parse_args())
    options = dict(option.split("=", 1) for option in given.pop("option"))
    program = PROGRAMS[given["program"]]
    try:
        workers = int(os.environ.get("WORKERS", os.environ.get("WORLD_SIZE", "1")))
        ranks = int(os.environ.get("RANKS_PER_HOST", "1"))
        program.check(Sizes(workers, given["batch_size"], ranks), options)
    except ValueError as error:
        sys.exit(f"{given['program']}: {error}")
    given["out"].mkdir(parents=True, exist_ok=True)
    try:
        if program.launcher == "tensorflow":
            from . import tensorflow_programs

            del given["trace"], given["data"], given["warm_up"]
            tensorflow_programs.run(**given, options=options)
        else:
            _torch(given, options)
    except ImportError as error:
        print(
            f"{error.name or error} is not installed here: pip install {error.name or program.needs[-1]}",
            file=sys.stderr,
        )
        sys.exit(3)
    sys.stdout.flush()
    # a thread of gloo that asks for the interpreter while it shuts down aborts the process: leave without that
    os._exit(0)


def _torch(given: dict[str, object], options: dict[str, str]) -> None:
    import torch

    from . import gloo, nccl, patterns, training
    from .logs import HostClock, Recorder

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    arguments = training.Arguments(**given, options=options)  # type: ignore[arg-type]
    label = os.environ.get("LABEL") or f"worker-{int(os.environ.get('RANK', '0')) + 1}"
    on_gpu = PROGRAMS[arguments.program].backend == "nccl"
    if on_gpu:
        nccl.take_gpu()
    training.prepare_traces(arguments.trace)
    local_rank = os.environ.get("LOCAL_RANK", os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK", "0"))
    recorder = Recorder(arguments.out, label, nccl.GpuClock() if on_gpu else HostClock(), writes=local_rank == "0")
    programs = gloo.COMMUNICATIONS | patterns.PATTERNS | nccl.ON_GPU
    training.run(arguments, programs[arguments.program](recorder, options), recorder)


main()
