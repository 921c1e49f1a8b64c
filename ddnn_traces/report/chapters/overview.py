"""The runs, and how many of the captured packets are in their flows."""

from __future__ import annotations

import polars as pl

from ddnn_traces.report.section import Chapter, Column, Section, Source, numbers, texts
from ddnn_traces.report.words import count, number_of, percent, size, words
from ddnn_traces.text import counted

chapter = Chapter("overview", "Overview")


@chapter.section("captured", "Runs and captured packets", Source("run_overview"))
def captured(section: Section, runs: pl.DataFrame) -> None:
    of_ledger, of_partial = Source("ledger_sums"), Source("partial_captures")
    ledger, partial = section.rows(of_ledger), section.rows(of_partial)
    in_flows = dict(zip(ledger["reason"], ledger["share_of_packets"], strict=True)).get("in_flows", 0.0)
    whole = "every capture file is complete"
    if not partial.is_empty():
        whole = (
            f"{partial.height:,} of {counted(int(runs['captures'].sum()), 'capture file')} could be read only in part"
        )
        columns = [
            texts("run", "run_id"), texts("file", "capture_id"), texts("status", "status"),
            texts("problem", "status_detail"), numbers("packets read", "records", count),
        ]  # fmt: skip
        caption = "Partial captures: the packets that could be read are counted."
        section.table(partial, columns, caption, of_partial, "file")
    section.headline = (
        f"{counted(runs.height, 'run')}, {size(number_of(runs['wire_bytes'].sum()))} on the wire in "
        f"{counted(int(runs['packets'].sum()), 'packet')}; {whole}, and {percent(in_flows)} of the captured packets "
        "are in the flows below."
    )
    if note := section.results.synthetic_sentence:
        section.headline = f"{note} {section.headline}"
    columns = [
        texts("reason", "reason", words), numbers("packets", "packets", count),
        numbers("share of packets", "share_of_packets", percent), numbers("bytes on the wire", "wire_bytes", count),
        numbers("files", "captures", count), numbers("runs", "runs", count),
    ]  # fmt: skip
    caption = "All captured packets, by whether and why they are in no flow; the rows add up to what is in the files."
    section.table(ledger, columns, caption, of_ledger, "reason")
    columns = [
        texts("run", "run_id"), texts("source", "source"), texts("framework", "framework"), texts("backend", "backend"),
        texts("model", "model"), numbers("model size (MB)", "model_mb"),
        numbers("batch (samples)", "batch_size", count), texts("topology (declared)", "topology", words),
        numbers("hosts", "hosts", count), numbers("packets", "packets", count),
        numbers("volume on the wire", "wire_bytes", size),
        numbers("duration (s)", "duration_s"), numbers("steps", "steps", count),
        Column("files", lambda run: f"{run['captures']}{_partial(run['partial_captures'])}", is_number=True),
    ]  # fmt: skip
    caption = "The runs. A dash is a value that is not declared; a run.toml in the run's folder can declare it."
    section.table(runs, columns, caption)


def _partial(captures: int) -> str:
    return f", {captures} partial" if captures else ""
