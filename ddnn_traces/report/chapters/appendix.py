"""Bookkeeping: every run, and every captured packet by whether it is in a flow."""

from __future__ import annotations

import polars as pl

from ddnn_traces.report.section import Chapter, Column, Section, Source, numbers, texts
from ddnn_traces.report.words import count, percent, size, words
from ddnn_traces.text import counted

chapter = Chapter("appendix", "Appendix")


@chapter.section("runs", "Runs", Source("run_overview"), draws=())
def runs(section: Section, frame: pl.DataFrame) -> None:
    section.headline = f"{counted(frame.height, 'run')}, {counted(int(frame['captures'].sum()), 'capture file')}."
    columns = [
        texts("run", "run_id"), texts("source", "source"), texts("framework", "framework"), texts("backend", "backend"),
        texts("model", "model"), numbers("model size (MB)", "model_mb"),
        numbers("batch (samples)", "batch_size", count), texts("topology (declared)", "topology", words),
        numbers("hosts", "hosts", count), numbers("packets", "packets", count),
        numbers("volume on the wire", "wire_bytes", size),
        numbers("duration (s)", "duration_s"), numbers("steps", "steps", count),
        Column("files", lambda run: f"{run['captures']}{_partial(run['partial_captures'])}", is_number=True),
    ]  # fmt: skip
    caption = "A dash is a value that is not declared; a run.toml in the run's folder can declare it."
    section.table(frame, columns, caption)


def _partial(captures: int) -> str:
    return f", {captures} partial" if captures else ""


@chapter.section("ledger", "Captured packets", Source("ledger_sums"), "No packet was captured.", draws=())
def ledger(section: Section, frame: pl.DataFrame) -> None:
    in_flows = dict(zip(frame["reason"], frame["share_of_packets"], strict=True)).get("in_flows", 0.0)
    section.headline = f"{percent(in_flows)} of the captured packets are in flows."
    columns = [
        texts("reason", "reason", words), numbers("packets", "packets", count),
        numbers("share of packets", "share_of_packets", percent), numbers("bytes on the wire", "wire_bytes", count),
        numbers("files", "captures", count), numbers("runs", "runs", count),
    ]  # fmt: skip
    caption = "All captured packets, by whether and why they are in no flow; the rows add up to what is in the files."
    section.table(frame, columns, caption)
