"""Make the run of tests/traces/profilers from one of the testbed: its captures, and its profilers' files cut down.

    ddnn-traces testbed run matrix.toml --out made          # the matrix below; PyTorch 2.13, gloo
    python tests/traces/profilers/cut_profilers.py made/torch-mlp1-sgd-32-gloo-normal-ring-n4 tests/traces/profilers

    [defaults]
    steps = 10
    capture.snaplen = 66
    trace = ["flight_recorder", "kineto"]
    [[runs]]
    program = "ddp"
    workers = 4
    model = "mlp1"

Captures and flight recorders are whole. Of a Kineto trace all that is no cpu_op is kept, and the first 20 of these.
Names of the machine are left out. run.toml has the hosts and what is declared of the model.
"""

from __future__ import annotations

import gzip
import json
import shutil
import sys
import tomllib
from pathlib import Path

import tomli_w

_KEPT = ("framework", "backend", "model", "model_bytes", "batch_size", "topology", "workers", "source")
_OPERATIONS = 20


def main(run: Path, out: Path) -> None:
    """Write the folder."""
    folder = out / run.name
    folder.mkdir()
    for path in sorted(run.iterdir()):
        if path.name.endswith(".pcap.gz"):
            shutil.copyfile(path, folder / path.name)
        elif path.name.startswith("flight_recorder-"):
            _write(folder / f"{path.name}.gz", path.read_bytes())
        elif path.name.startswith("kineto-"):
            _write(folder / path.name, _cut(json.loads(gzip.decompress(path.read_bytes()))))
    declared = tomllib.loads((run / "run.toml").read_text())
    kept = {key: declared[key] for key in (*_KEPT, "hosts")}
    (folder / "run.toml").write_text(tomli_w.dumps(kept))


def _cut(trace: dict[str, object]) -> bytes:
    events = trace["traceEvents"]
    assert isinstance(events, list)
    operations = [event for event in events if event.get("cat") in ("cpu_op", "fwdbwd", "ac2g")][_OPERATIONS:]
    left_out = set(map(id, operations))
    about = {key: value for key, value in trace.items() if key not in ("host_name", "traceName", "trace_id")}
    return json.dumps({**about, "traceEvents": [event for event in events if id(event) not in left_out]}).encode()


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(gzip.compress(data, mtime=0))


main(Path(sys.argv[1]), Path(sys.argv[2]))
