"""The first screen: what was captured, and how fast it was transmitted over the whole of each run."""

from __future__ import annotations

from datetime import UTC, datetime

import polars as pl

from ddnn_traces.report.chapters import drivers
from ddnn_traces.report.chapters.time import by_inferred_steps, by_stretch, without_kills
from ddnn_traces.report.charts import regression, wire
from ddnn_traces.report.number_text import FEW, number_of, percent, rate, size, typical
from ddnn_traces.report.section import NO_FLOWS, Chapter, Results, Section, Source
from ddnn_traces.text import counted, listed

#: Rows of the chart of all runs together, about; windows and pairs of a run, at most and at least.
ROWS = 60_000
MOST_WINDOWS, LEAST_WINDOWS = 300, 48
PAIRS, FEW_PAIRS = 8, 4
_LEAST_LATE = 0.01  # of a link's bytes, as in verdicts

chapter = Chapter("summary", "Summary")


def facts(results: Results) -> list[tuple[str, str]]:
    """What was captured, as numbers with what each is of."""
    runs = results.rows(Source("run_overview"))
    found = [
        (f"{runs.height:,}", "run" if runs.height == 1 else "runs"),
        (f"{int(runs['hosts'].sum()):,}", "hosts" if runs.height == 1 else "hosts, each run's counted anew"),
        (size(number_of(runs["wire_bytes"].sum())), "on the wire"),
        (f"{int(runs['packets'].sum()):,}", "packets"),
        (_duration(number_of(runs["duration_s"].sum())), "captured" if runs.height == 1 else "of all runs together"),
    ]
    starts = results.rows(Source("timeline_start"))["run_start_ns"]
    if len(starts) and results.synthetic_sentence == "":
        first, last = (datetime.fromtimestamp(number_of(ns) / 1e9, UTC).date() for ns in (starts.min(), starts.max()))
        days = f"{first}" if first == last else f"{first} to {last}"
        found.append((days, f"first {'packet of the run' if runs.height == 1 else 'packets of the runs'}, UTC"))
    return found


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"


@chapter.section("law", "Volume of a step by workers, and by law", Source("run_step_volume"))
def law(section: Section, frame: pl.DataFrame) -> None:
    shown = drivers.volumes(section, frame).drop_nulls(["workers", "law_factor"])
    section.need(shown, "No run has a number of workers and a topology with a law of its volume (run.toml).")
    if shown.select("workers", "law_factor").n_unique() == 1:  # a single mark shows less than a sentence
        section.sentences = [_of_one_law(shown)]
        return
    caption = (
        "A point is a run: its volume on the cable, over model_bytes; headers and other traffic put it above its law. "
        "Runs that the fit leaves out are not drawn."
    )
    section.figure(regression.volume_by_law, shown, caption, parts=[section.part(shown, frame)])


def _of_one_law(shown: pl.DataFrame) -> str:
    workers, law_factor = shown.select("workers", "law_factor").row(0)
    models = typical(shown.with_columns(models=pl.col("step_bytes") / pl.col("size_bytes")), "models")
    topologies = ", ".join(shown["topology"].unique().sort().str.replace_all("_", " "))
    return (
        f"A step of {counted(workers, 'worker')} sends {models} times the model's bytes on the cable; the law of "
        f"{topologies} says {law_factor:.4g}."
    )


@chapter.section(
    "throughput",
    "Throughput of the whole run",
    Source("timeline_start"),
    NO_FLOWS,
    finding="Throughput",
    draws=("run_throughput",),
)
def throughput(section: Section, _: pl.DataFrame) -> None:
    windows = section.results.each(ROWS // (PAIRS + 1), MOST_WINDOWS, LEAST_WINDOWS)
    pairs = PAIRS if windows > LEAST_WINDOWS else FEW_PAIRS
    source = Source("run_throughput", {"windows": windows, "pairs": pairs})
    frame = section.rows(source, NO_FLOWS)
    once, but = _without_copies(section, frame)
    runs = once.group_by("run_id", "since_start_s", "window_s").agg(pl.col("gbit_per_s").sum())
    runs = runs.group_by("run_id").agg(pl.col("gbit_per_s").max(), pl.col("window_s").first())
    peak = runs.sort("gbit_per_s", "run_id", descending=[True, False]).row(0, named=True)
    several = frame["run_id"].n_unique() > 1
    where = f", in {peak['run_id']}{but}" if several else ""
    means = section.rows(Source("total_throughput")).drop_nulls("gbit_per_s")
    trained, killed = without_kills(section, means)
    timed = by_inferred_steps(section, trained)
    mean = f"{by_stretch(timed, _typical_rate)} on average, and " if trained.height else ""
    senders, part = _whose(section, frame)
    section.headline = (
        f"{senders} {mean}at most "
        f"{rate(peak['gbit_per_s'])} over {peak['window_s'] * 1e3:g} ms{where}"
        f"{_sent_again(frame)}{_came_late(section, several)}.{part}{killed}"
    )
    caption = (
        "All pairs of hosts, stacked, in windows of 1, 2 or 5 times a power of ten; at first the training. Red: "
        "windows in which payload was sent again. Drag over the grey strip to enlarge a range, double-click it for the "
        f"whole run; click a pair in the legend to see it alone. Of a run the {pairs} pairs that send most are drawn "
        "apart. The run with the median throughput comes first, of the runs in which no data check finds "
        f"anything, with a log and three hosts or more where some are so"
        f"{', and no kill' if killed and trained.height else ''}."
        + (" A gap in a run with a kill is the pause until its training goes on." if killed else "")
    )
    lead = _representative(section, means if trained.is_empty() else trained)
    section.figure(wire.run_throughput, frame, caption, source, lead=lead)


def _whose(section: Section, frame: pl.DataFrame) -> tuple[str, str]:
    """Whose traffic the throughput is, and a sentence on the runs of which it is a part, where other runs are whole."""
    runs = {*frame["run_id"]}
    of = "a" if len(runs) > 1 else "the"
    partly = sorted(runs & section.results.partly_covered)
    if len(partly) == len(runs):
        return f"The captures, which do not cover all hosts of {of} run, show", ""
    said = f"All hosts of {of} run together transmit"
    if not partly:
        return said, ""
    return said, f" Of {counted(len(partly), 'run')} ({listed(partly, FEW)}) it is what the captures show, not all."


def _without_copies(section: Section, frame: pl.DataFrame) -> tuple[pl.DataFrame, str]:
    """The rows of runs whose packets are captured once, and what is said of the others; all where there are no such."""
    faults = section.results.faults.get("captured_copies")
    once = frame if faults is None else frame.join(faults, on="run_id", how="anti")
    if faults is None or once.is_empty():
        return frame, ""
    return once, f" (but for {counted(faults['run_id'].n_unique(), 'run')} with copies of packets)"


def _came_late(section: Section, several: bool) -> str:
    """Of the link with most bytes behind others that follow them: none repeats what was lost before the capture."""
    late = section.rows(Source("links_sent_again")).filter(pl.col("late_share") >= _LEAST_LATE)
    if late.is_empty():
        return ""
    most = late.sort("late_share", "run_id", descending=[True, False]).row(0, named=True)
    where = f" in {most['run_id']}" if several else ""
    return (
        f"; {percent(most['late_share'])} of the bytes from {most['src_ip']} to {most['dst_ip']}{where} come late, "
        "behind bytes that follow them, as where packets are lost before they are captured, or overtake each other"
    )


def _typical_rate(means: pl.DataFrame) -> str:
    """The median of five runs and more; the least and the most of fewer, with their runs."""
    runs = means.select("run_id", "gbit_per_s").sort("gbit_per_s", "run_id")
    (least, low), (most, high) = runs.row(0), runs.row(-1)
    if runs.height >= FEW or rate(low) == rate(high):
        return typical(means, "gbit_per_s", rate)
    return f"{rate(low)} ({least}) to {rate(high)} ({most})"


def _representative(section: Section, means: pl.DataFrame) -> str:
    """The run of median throughput among those in which no data check finds a problem, that have steps, three hosts or
    more, as far as there are such."""
    runs = means.join(section.rows(Source("run_overview")).select("run_id", "hosts", "steps"), on="run_id")
    flagged = {run for rows in section.results.faults.values() for run in rows["run_id"]}
    for wanted in (~pl.col("run_id").is_in(flagged), pl.col("steps") > 0, pl.col("hosts") > 2):
        runs = runs.filter(wanted) if runs.filter(wanted).height else runs
    runs = runs.sort("gbit_per_s", "run_id")
    return "" if runs.is_empty() else str(runs["run_id"][(runs.height - 1) // 2])


def _sent_again(frame: pl.DataFrame) -> str:
    """What part of the bytes was sent again, as far as it is known."""
    sums = frame.drop_nulls("retransmitted_bytes").group_by("run_id")
    again = pl.col("retransmitted_bytes").sum()
    known = sums.agg(again=again, share=again / pl.col("wire_bytes").sum())
    some = known.filter(pl.col("again") > 0)
    if known.is_empty():
        return ""
    if some.is_empty():
        return "; nothing is sent again, as far as sequence numbers show"
    share = percent(number_of(some["share"].max()))
    if frame["run_id"].n_unique() == 1:
        return f"; {share} of its bytes are sent again"
    if some.height == 1:
        return f"; 1 run sends payload again, {share} of its bytes"
    return f"; {counted(some.height, 'run')} send payload again, at most {share} of the bytes"
