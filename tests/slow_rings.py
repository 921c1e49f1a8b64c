"""Datasets of rings in which one host or link is slow, by the times at which hosts compute and send."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import polars as pl
from datasets import write_dataset

from ddnn_traces.query.dataset import Dataset

MS = 1_000_000
ORIGIN_NS = 1_700_000_000_000_000_000
WORKERS, STEPS, CHUNK_BYTES = 4, 12, 125_000
HOSTS = [f"10.0.0.{number + 1}" for number in range(WORKERS)]
ROUNDS = 2 * (WORKERS - 1)


def ring(
    run_id: str,
    seed: int,
    late_ms: dict[tuple[int, int], float] | None = None,
    slow_link: int | None = None,
    answer_ms: float = 0,
    unread: int | None = None,
    window_bytes: int = 1_000_000,
    others: int = 0,
) -> dict[str, pl.DataFrame]:
    """A ring all-reduce a step: chunks of 1 ms, computation of 50 ms with a deviation of 1 ms.

    late_ms: what a host computes longer in a step. slow_link: the host whose link takes 10 ms for a chunk; answers
    come answer_ms later from its receiver, whose window is window_bytes, and which gets data of so many others.
    unread: the host whose link is as fast as others, but whose receiver's kernel answers the first data of a step so
    late.
    """
    noise = random.Random(seed)
    free, messages = [0.0] * WORKERS, []
    for step in range(STEPS):
        ready = [
            free[host] + 50 + abs(noise.gauss(0, 1)) + (late_ms or {}).get((host, step), 0) for host in range(WORKERS)
        ]
        arrived = [0.0] * WORKERS
        for number in range(ROUNDS):
            starts = [max(ready[host], arrived[host] + 0.1) for host in range(WORKERS)]
            for host, start in enumerate(starts):
                length = (10 if host == slow_link else 1) * noise.uniform(0.9, 1.1)
                messages.append((host, step * ROUNDS + number, start, length))
                ready[host] = start + length
            arrived = [ready[host - 1] for host in range(WORKERS)]
        free = [max(ready[host], arrived[host]) for host in range(WORKERS)]
    whole: dict[str, list[dict[str, Any]]] = {
        "flows": [flow for host in range(WORKERS) for flow in both_ways(host, host == slow_link, window_bytes)]
        + [
            {"flow_id": 2 * WORKERS + n, "src_ip": f"10.0.1.{n}", "dst_ip": HOSTS[((slow_link or 0) + 1) % WORKERS],
             "protocol": 17}
            for n in range(others)
        ],
        "flow_windows": [
            {"flow_id": WORKERS + host, "window_ns": MS, "wire_bytes": 66,
             "window_start_ns": ORIGIN_NS + int(start + answer_ms * is_late) * MS}
            for host, number, start, _ in messages  # TCP acknowledges each chunk
            for is_late in [host == slow_link or (host == unread and number % ROUNDS == 0)]
        ] + [
            {"flow_id": 2 * WORKERS + n, "window_start_ns": ORIGIN_NS + int(start) * MS, "window_ns": MS,
             "wire_bytes": 100_000}
            for host, _, start, _ in messages if host == slow_link for n in range(others)
        ],
        "messages": [
            {"flow_id": host, "message": number, "first_ns": ORIGIN_NS + int(start * MS),
             "duration_ns": int(length * MS), "stream_offset": number * CHUNK_BYTES, "bytes": CHUNK_BYTES,
             "packets": 100, "end_source": "silence"}
            for host, number, start, length in messages
        ],
        "hosts": [{"host_ip": host, "label": f"worker-{number + 1}"} for number, host in enumerate(HOSTS)],
        "captures": [{"capture_id": f"{host}.pcap", "vantage_ip": host} for host in HOSTS],
    }  # fmt: skip
    return {
        table: pl.DataFrame(rows).with_columns(run_id=pl.lit(run_id)).cast(pl.String) for table, rows in whole.items()
    }


def both_ways(host: int, is_slow: bool, window_bytes: int) -> list[dict[str, Any]]:
    """The flow from a host to the next one, and the one with its answers."""
    ends = HOSTS[host], HOSTS[(host + 1) % WORKERS]
    flows = [
        (host, ends, host + WORKERS, None),
        (host + WORKERS, ends[::-1], host, window_bytes if is_slow else 1 << 20),
    ]
    return [
        {"flow_id": flow, "src_ip": src, "dst_ip": dst, "protocol": 6, "reverse_flow_id": reverse,
         "receive_window_bytes": window}
        for flow, (src, dst), reverse, window in flows
    ]  # fmt: skip


def dataset(folder: Path, *runs: dict[str, pl.DataFrame]) -> Dataset:
    names = dict.fromkeys(table for run in runs for table in run)
    tables = {name: pl.concat([run[name] for run in runs if name in run], how="diagonal") for name in names}
    tables["runs"] = pl.DataFrame({"run_id": [run["hosts"]["run_id"][0] for run in runs]})
    opened: Dataset = write_dataset(folder, tables)
    return opened


def always(host: int, late_ms: float) -> dict[tuple[int, int], float]:
    return {(host, step): late_ms for step in range(STEPS)}
