"""A training program without a framework, in place of a Python that has PyTorch.

Every worker sends SIZE bytes a step to worker 1 and gets as many back, over one TCP connection each. It takes the
arguments of programs/ and writes its files.
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
    ends = []
    peers = connections(rank, workers, (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
    for _ in range(int(arguments["--steps"])):
        for peer in peers:
            exchange(peer, first=rank > 0)
        ends.append(time.time())
    rows = [f"batch,{step},{end:.6f},0,0" for step, end in enumerate(ends)]
    (out / f"train_history-{label}.log").write_text("\n".join(["Type,ID,Timestamp,Loss,Accuracy", *rows, ""]))
    if rank == 0:
        truth = {"topology": "star", "model_bytes": SIZE, "model_params": SIZE // 4, "versions": {"toy": "1"}}
        (out / "truth.json").write_text(json.dumps(truth))


if __name__ == "__main__" and sys.argv[1] == "-m":  # with -c: whether it has PyTorch
    main()
