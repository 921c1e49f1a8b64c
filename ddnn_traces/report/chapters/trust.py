"""Whether the numbers can be trusted: what the captures lost, and which files could be read only in part.

The appendix is the bookkeeping: every run, and every captured packet by whether it is in a flow.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from ddnn_traces.query import diagnosis
from ddnn_traces.report.number_text import count, number_of, percent, size, words
from ddnn_traces.report.section import Chapter, Column, Section, Source, numbers, texts
from ddnn_traces.text import as_sentence, counted, listed

chapter = Chapter("trust", "Can it be trusted")
appendix = Chapter("appendix", "Appendix")

_PARTIAL = Source("partial_captures")
_MOST_NAMES = 3  # runs in a headline


@chapter.section("losses", "Packets that the captures lack", Source("run_capture_loss"), finding="Captures", draws=())
def losses(section: Section, frame: pl.DataFrame) -> None:
    runs = section.rows(Source("run_overview"))
    said = [_lost(section, frame), *_uncovered(section, frame), *_several_jobs(section)]
    partial = section.rows(_PARTIAL)
    said += [_partly_read(section, partial, runs), _checked(section, partial)]
    said.append(_in_flows(section) + _offload(runs))
    hosts, jobs = section.rows(Source("uncaptured_hosts")), section.rows(Source("jobs"))
    alone = diagnosis.alone(diagnosis.of_one_host(hosts, jobs))
    untaken = as_sentence(section.results.untaken_steps) if section.results.untaken_steps else ""
    section.headline = " ".join(filter(None, [f"{'; '.join(said)}.", untaken, alone, *section.results.step_notes]))
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
        "what the capturing program counted as dropped, or counted and the file has not."
    )
    section.table(some, columns, caption, noun="loss")
    return (
        f"The captures of {counted(some.height, 'run')} lost packets, those of {int(some['flagged'].sum()):,} more "
        f"than 0.1%, {size(number_of(some['lost_bytes'].fill_null(0).sum()))} in all{of}"
    )


def _uncovered(section: Section, frame: pl.DataFrame) -> list[str]:
    """A table of the runs of which hosts are in no capture; what the headline says of them."""
    some = frame.drop_nulls("problem")
    if some.is_empty():
        return []
    caption = "Runs whose captures do not cover all hosts: volumes, rates and steps are those of a part of the run."
    section.table(some, [texts("run", "run_id"), texts("what is in no capture", "problem")], caption)
    return [f"the captures of {counted(some.height, 'run')} do not cover all hosts, so that what these sent is unknown"]


def _several_jobs(section: Section) -> list[str]:
    """A table of the runs whose captures hold several jobs; what the headline says of them."""
    source = Source("jobs_of_run")
    some = section.rows(source).drop_nulls("problem")
    if some.is_empty():
        return []
    caption = (
        "Runs that hold several jobs; the query `jobs` has the hosts and the step time of each, `job_filters` "
        "what separates them."
    )
    columns = [texts("run", "run_id"), numbers("jobs", "jobs", count), texts("what to do", "problem")]
    section.table(some, columns, caption, source)
    mixed = some.filter(~pl.col("is_pair_averaging"))
    if mixed.is_empty():
        return []
    named = listed(mixed["run_id"].to_list(), _MOST_NAMES)
    return [
        f"several jobs are in the captures of {counted(mixed.height, 'run')} ({named}): topology, totals and steps "
        "are of all together"
    ]


def _partly_read(section: Section, partial: pl.DataFrame, runs: pl.DataFrame) -> str:
    """A table of the captures that are cut or corrupt; what the headline says of them."""
    if partial.is_empty():
        return "no capture file that is here is cut short or corrupt"
    columns = [
        texts("run", "run_id"), texts("file", "capture_id"), texts("status", "status"),
        texts("problem", "status_detail"), numbers("packets read", "records", count),
    ]  # fmt: skip
    section.table(partial, columns, "Partial captures: the packets that could be read are counted.", _PARTIAL, "file")
    return f"{partial.height:,} of {counted(int(runs['captures'].sum()), 'capture file')} could be read only in part"


def _checked(section: Section, partial: pl.DataFrame) -> str:
    """A table of what data checks find; what the headline says of it, and of what they could not examine."""
    faults = section.results.faults
    unchecked = section.rows(Source("unchecked"))
    unseen = unchecked.filter(~pl.col("is_partial"))
    left = f" (in {counted(unseen['run_id'].n_unique(), 'run')} not all checks have data)" if unseen.height else ""
    if not faults:
        # `check` counts files that are cut short as one of its checks
        return f"no {'' if partial.is_empty() else 'other '}data check finds anything{left}"
    rows = pl.DataFrame(
        {"check": name, "runs": frame["run_id"].n_unique(), "first": frame["run_id"].min(), "rows": frame.height}
        for name, frame in faults.items()
    )
    columns = [
        texts("check", "check", words), numbers("runs", "runs", count), texts("first of them", "first"),
        numbers("rows", "rows", count),
    ]  # fmt: skip
    section.table(rows, columns, "What data checks find; `ddnn-traces check DATASET` has the rows.", noun="check")
    named = ", ".join(
        f"{words(name)} in {first if runs == 1 else counted(runs, 'run')}"
        for name, runs, first in rows["check", "runs", "first"].iter_rows()
    )
    return f"these data checks find problems: {named}{left}"


def _in_flows(section: Section) -> str:
    said, is_all = _share_in_flows(section.rows(Source("ledger_sums")))
    return said + ("" if is_all else " (the appendix says why the others are not)")


def _share_in_flows(sums: pl.DataFrame) -> tuple[str, bool]:
    """How many of the captured packets are in flows, second copies named, and whether these are all."""
    packets = dict(sums.select("reason", "packets").iter_rows())
    captured, second = sum(packets.values()), packets.get("duplicate_vantage", 0)
    if not captured:
        return "no packet was captured", True
    of_flows = packets.get("in_flows", 0) + second
    where = "both ends, or several interfaces of a host, captured these, and they count once"
    copies = f", {percent(second / captured)} as second copies: {where}"
    said = f"{percent(of_flows / captured)} of the captured packets are in flows{copies if second else ''}"
    return said, of_flows == captured


def _offload(runs: pl.DataFrame) -> str:
    with_offload = runs.filter("offload").height
    return (
        f"; {counted(with_offload, 'run')} captured with segmentation offload, which hides headers"
        if with_offload
        else ""
    )


# --- bookkeeping


@appendix.section("runs", "Runs", Source("run_overview"), draws=())
def runs(section: Section, frame: pl.DataFrame) -> None:
    section.headline = f"{counted(frame.height, 'run')}, {counted(int(frame['captures'].sum()), 'capture file')}."
    columns = [
        texts("run", "run_id"), texts("source", "source"), texts("framework", "framework"), texts("backend", "backend"),
        texts("model", "model"), numbers("model size (MB)", "model_mb"),
        numbers("batch (samples)", "batch_size", count), texts("topology (declared)", "topology", words),
        numbers("hosts", "hosts", count), numbers("packets", "packets", count),
        numbers("volume on the wire", "wire_bytes", size),
        numbers("duration (s)", "duration_s"), numbers("steps", "steps", _logged_steps),
        Column("files", _files, is_number=True),
    ]  # fmt: skip
    caption = (
        "A dash is a value that is not declared; a run.toml in the run's folder can declare it. Steps are those of the "
        f"log{' or, without one, of the traffic' if section.results.runs_of_inferred_steps else ''}."
    )
    section.table(frame, columns, caption)


def _logged_steps(steps: int) -> str:
    """Without a log they are not known."""
    return count(steps or None)


def _files(run: dict[str, Any]) -> str:
    """How many capture files a run has, and how many of them are only a part or a copy."""
    partial, copied = run["partial_captures"], run["copied_captures"]
    copies = "copy" if copied == 1 else "copies"
    return f"{run['captures']}" + f", {partial} partial" * bool(partial) + f", {copied} {copies}" * bool(copied)


@appendix.section("ledger", "Captured packets", Source("ledger_sums"), "No packet was captured.", draws=())
def ledger(section: Section, frame: pl.DataFrame) -> None:
    section.headline = f"{_share_in_flows(frame)[0]}."
    columns = [
        texts("reason", "reason", words), numbers("packets", "packets", count),
        numbers("share of packets", "share_of_packets", percent), numbers("bytes on the wire", "wire_bytes", count),
        numbers("files", "captures", count), numbers("runs", "runs", count),
    ]  # fmt: skip
    caption = "All captured packets, by whether and why they are in no flow; the rows add up to what is in the files."
    section.table(frame, columns, caption)
