"""A training program without a framework, in place of a Python that has PyTorch.

Every worker sends SIZE bytes a step to worker 1 and gets as many back, over one TCP connection each. It takes the
arguments of programs/, pauses and sleeps as they do, and writes their files, a line at the end of each step.
"""

import json
import os
import socket
import sys
import time
from pathlib import Path

SIZE = 200_000


def exchange(connection: socket.socket, first: bool) -> None:
    for sends in (first, not first):
        if sends:
            connection.sendall(bytes(SIZE))
        else:
            left = SIZE
            while left:
                left -= len(connection.recv(left))


def connections(rank: int, workers: int, address: tuple[str, int]) -> list[socket.socket]:
    if rank == 0:
        with socket.create_server(address) as server:
            return [server.accept()[0] for _ in range(workers - 1)]
    while True:
        try:
            return [socket.create_connection(address, timeout=60)]
        except ConnectionRefusedError:
            time.sleep(0.05)  # worker 1 does not listen yet


def main() -> None:
    arguments = dict(zip(sys.argv[4::2], sys.argv[5::2], strict=False))
    rank, workers, label = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), os.environ["LABEL"]
    out = Path(arguments["--out"])
    out.mkdir(parents=True, exist_ok=True)
    from programs import slowness  # the copy on the host

    peers = connections(rank, workers, (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
    with (out / f"train_history-{label}.log").open("w", buffering=1) as log:
        log.write("Type,ID,Timestamp,Loss,Accuracy\n")
        for step in range(int(arguments["--steps"])):
            time.sleep(float(arguments["--pause-ms"]) / 1e3)
            slowness.sleep(step)
            for peer in peers:
                exchange(peer, first=rank > 0)
            log.write(f"batch,{step},{time.time():.6f},0,0\n")
    if rank == 0:
        truth = {"topology": "star", "model_bytes": SIZE, "model_params": SIZE // 4, "versions": {"toy": "1"}}
        (out / "truth.json").write_text(json.dumps(truth))


if __name__ == "__main__" and sys.argv[1] == "-m":  # with -c: whether it has PyTorch
    main()
