"""What both sample scripts write into a run folder: run.toml, and pcap files compressed reproducibly."""

import gzip
import json
from pathlib import Path


def write_capture(path: Path, content: bytes) -> None:
    """Write a pcap file; a name that ends in .gz is compressed, the same bytes for the same content."""
    if path.suffix != ".gz":
        path.write_bytes(content)
        return
    with path.open("wb") as raw, gzip.GzipFile("", "wb", compresslevel=9, fileobj=raw, mtime=0) as packed:
        packed.write(content)


def write_run_toml(folder: Path, run: dict, hosts: list[dict], origin: dict) -> None:
    """Write run.toml: the run's own keys, one [[hosts]] table a host, one [origin] table; None is left out."""
    tables = [_table(run), *("[[hosts]]\n" + _table(host) for host in hosts), "[origin]\n" + _table(origin)]
    (folder / "run.toml").write_text("\n".join(tables))


def _table(values: dict) -> str:
    # A JSON string or number is a TOML one too, as long as the text is plain ASCII.
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items() if value is not None)
