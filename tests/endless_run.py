"""A dataset in which one run's tables never end: a million rows name the same host, and the page joins them."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
from small_runs import A, B, ring, write_captures

import ddnn_traces

#: The first by name, so that the page opens with it.
ENDLESS_RUN, SHORT_RUN = "endless", "short"


def endless_dataset(folder: Path) -> Path:
    for run in (ENDLESS_RUN, SHORT_RUN):
        write_captures(folder / "runs" / run, {"worker-1.pcap": ring(A, B)})
    ddnn_traces.ingest(folder / "runs", folder / "dataset").close()
    hosts = folder / "dataset" / "hosts" / f"run_id={ENDLESS_RUN}" / "part-0.parquet"
    row = pq.read_table(hosts, partitioning=None).slice(0, 1)
    pq.write_table(row.take([0] * 1_000_000), hosts)
    return folder / "dataset"
