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
    lost = _show_losses(section)
    section.headline = (
        f"{counted(runs.height, 'run')}, {size(number_of(runs['wire_bytes'].sum()))} on the wire in "
        f"{counted(int(runs['packets'].sum()), 'packet')}; {whole}, and {percent(in_flows)} of the captured packets "
        f"are in the flows below; {lost}."
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


def _show_losses(section: Section) -> str:
    """A table of the runs whose captures lost bytes; what the headline says of them."""
    source = Source("run_capture_loss")
    losses = section.rows(source)
    known = losses.drop_nulls("flagged")
    if known.is_empty():
        return "whether the captures lost packets is not known"
    some = known.filter((pl.col("lost_bytes").fill_null(0) > 0) | (pl.col("dropped_packets").fill_null(0) > 0))
    if some.is_empty():
        return "no sequence number and no counter shows that a capture lost a packet" + _of_runs(known, losses)
    columns = [
        texts("run", "run_id"), numbers("bytes not captured", "lost_bytes", count),
        numbers("percent of what was sent", "percent_lost"),
        numbers("packets dropped (counters)", "dropped_packets", count),
        numbers("percent of the packets", "percent_dropped"),
    ]  # fmt: skip
    caption = (
        "Runs whose captures lost packets: bytes that were sent, as sequence and acknowledgement numbers prove, and "
        "what the capturing program counted."
    )
    section.table(some, columns, caption, source, "loss")
    return (
        f"the captures of {counted(some.height, 'run')} lost packets, those of {int(some['flagged'].sum()):,} more "
        f"than 0.1%, {size(number_of(some['lost_bytes'].fill_null(0).sum()))} in all{_of_runs(known, losses)}"
    )


def _of_runs(known: pl.DataFrame, all_runs: pl.DataFrame) -> str:
    return (
        "" if known.height == all_runs.height else f" (known of {known.height:,} of {counted(all_runs.height, 'run')})"
    )


def _partial(captures: int) -> str:
    return f", {captures} partial" if captures else ""
