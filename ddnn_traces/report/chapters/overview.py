"""What was captured: the runs, and what became of every packet."""

from __future__ import annotations

import polars as pl

from ddnn_traces.report.answers import Answers
from ddnn_traces.report.section import Column, Section, Source, Table, named, numbers, table
from ddnn_traces.report.words import count, number, number_of, percent, size, words

_RUNS, _LEDGER, _PARTIAL = Source("run_overview"), Source("ledger_sums"), Source("partial_captures")


def overview(answers: Answers) -> Section:
    runs, ledger, partial = (answers.frame(source) for source in (_RUNS, _LEDGER, _PARTIAL))
    counted = dict(zip(ledger["reason"], ledger["share_of_packets"], strict=True)).get("in_flows", 0.0)
    whole = "every capture file is complete"
    if not partial.is_empty():
        whole = f"{partial.height:,} of {number(runs['captures'].sum(), 'capture file')} could be read only in part"
    headline = (
        f"{number(runs.height, 'run')}, {size(number_of(runs['wire_bytes'].sum()))} on the wire in "
        f"{number(runs['packets'].sum(), 'packet')}; {whole}, and {percent(counted)} of the captured packets are in "
        "the flows below."
    )
    if answers.made_up:
        headline = f"{answers.made_up} {headline}"
    tables = [_ledger_table(ledger), _run_table(runs)]
    if not partial.is_empty():
        tables.insert(0, _partial_table(partial))
    return Section("captured", "The runs, and what became of their packets", headline, tables=tables)


def _run_table(runs: pl.DataFrame) -> Table:
    columns = [
        named("run", "run_id"), named("source", "source"), named("framework", "framework"), named("backend", "backend"),
        named("model", "model"), numbers("model size (MB)", "model_mb"),
        numbers("batch (samples)", "batch_size", count), named("topology (declared)", "topology", words),
        numbers("hosts", "hosts", count), numbers("packets", "packets", count),
        numbers("volume on the wire", "wire_bytes", size),
        numbers("duration (s)", "duration_s"), numbers("steps", "steps", count),
        Column("files", lambda run: f"{run['captures']}{_partial(run['partial_captures'])}", is_number=True),
    ]  # fmt: skip
    caption = "The runs. A dash is what nobody declared; a run.toml in the run's folder can."
    return table(runs, columns, caption, _RUNS)


def _partial(captures: int) -> str:
    return f", {captures} partial" if captures else ""


def _ledger_table(ledger: pl.DataFrame) -> Table:
    columns = [
        named("what became of them", "reason", words), numbers("packets", "packets", count),
        numbers("share of packets", "share_of_packets", percent), numbers("bytes on the wire", "wire_bytes", count),
        numbers("files", "captures", count), numbers("runs", "runs", count),
    ]  # fmt: skip
    caption = "All captured packets; the rows add up to what is in the files."
    return table(ledger, columns, caption, _LEDGER, "reason")


def _partial_table(partial: pl.DataFrame) -> Table:
    columns = [
        named("run", "run_id"), named("file", "capture_id"), named("status", "status"),
        named("what is wrong", "status_detail"), numbers("packets read", "records", count),
    ]  # fmt: skip
    caption = "Partial captures: what could be read of them counts."
    return table(partial, columns, caption, _PARTIAL, "file")
