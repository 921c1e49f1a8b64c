"""Whether the numbers can be trusted: what the captures lost, and which files could be read only in part."""

from __future__ import annotations

import polars as pl

from ddnn_traces.report.section import Chapter, Section, Source, numbers, texts
from ddnn_traces.report.words import count, number_of, percent, size
from ddnn_traces.text import counted

chapter = Chapter("trust", "Can it be trusted")


@chapter.section("losses", "Packets that the captures lack", Source("run_capture_loss"), finding="Captures", draws=())
def losses(section: Section, frame: pl.DataFrame) -> None:
    runs = section.rows(Source("run_overview"))
    section.headline = f"{_lost(section, frame)}; {_partly_read(section, runs)}; {_in_flows(section)}{_offload(runs)}."
    if note := section.results.synthetic_sentence:
        section.headline = f"{note} {section.headline}"


def _lost(section: Section, frame: pl.DataFrame) -> str:
    """A table of the runs whose captures lost bytes; what the headline says of them."""
    known = frame.drop_nulls("flagged")
    if known.is_empty():
        return "Whether the captures lost packets is not known"
    of = "" if known.height == frame.height else f" (known of {known.height:,} of {counted(frame.height, 'run')})"
    some = known.filter((pl.col("lost_bytes").fill_null(0) > 0) | (pl.col("dropped_packets").fill_null(0) > 0))
    if some.is_empty():
        return f"No sequence number and no counter shows that a capture lost a packet{of}"
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
    section.table(some, columns, caption, noun="loss")
    return (
        f"The captures of {counted(some.height, 'run')} lost packets, those of {int(some['flagged'].sum()):,} more "
        f"than 0.1%, {size(number_of(some['lost_bytes'].fill_null(0).sum()))} in all{of}"
    )


def _partly_read(section: Section, runs: pl.DataFrame) -> str:
    """A table of the captures that are cut or corrupt; what the headline says of them."""
    source = Source("partial_captures")
    partial = section.rows(source)
    if partial.is_empty():
        return "every capture file is complete"
    columns = [
        texts("run", "run_id"), texts("file", "capture_id"), texts("status", "status"),
        texts("problem", "status_detail"), numbers("packets read", "records", count),
    ]  # fmt: skip
    section.table(partial, columns, "Partial captures: the packets that could be read are counted.", source, "file")
    return f"{partial.height:,} of {counted(int(runs['captures'].sum()), 'capture file')} could be read only in part"


def _in_flows(section: Section) -> str:
    ledger = section.rows(Source("ledger_sums"))
    share = dict(zip(ledger["reason"], ledger["share_of_packets"], strict=True)).get("in_flows", 0.0)
    others = " (the appendix says why the others are not)" if share < 1 else ""
    return f"{percent(share)} of the captured packets are in flows{others}"


def _offload(runs: pl.DataFrame) -> str:
    with_offload = runs.filter("offload").height
    return (
        f"; {counted(with_offload, 'run')} captured with segmentation offload, which hides headers"
        if with_offload
        else ""
    )
