"""Chang: the phases and transfers of training with parameter servers."""

from __future__ import annotations

import polars as pl

from ddnn_traces.report.charts import chang as charts
from ddnn_traces.report.section import Chapter, Section, Source, numbers, texts
from ddnn_traces.report.words import count, percent, size, span
from ddnn_traces.text import counted

RUNS = 40  # of a chart with two rows a run
_SOURCE = Source("parameter_server_transfers")
_NO_SERVER = (
    "No run has a parameter server: no host is declared as one (role in run.toml), and in no run that is declared a "
    "star or parameter_server is one host an end of nearly all payload."
)

chapter = Chapter("chang", "Chang: parameter servers")


@chapter.section("server-phases", "Aggregation and distribution (section 3, fig. 2)", _SOURCE, _NO_SERVER)
def phases(section: Section, frame: pl.DataFrame) -> None:
    problems = frame.drop_nulls("problem")["run_id", "problem"]
    section.sentences = [f"{run_id}: {problem}" for run_id, problem in problems.iter_rows()]
    timed = section.need(frame.filter(pl.col("phase").is_in(["aggregation", "distribution"])), _no_phases(frame))
    aggregation, distribution = (timed.filter(phase=phase)["mean_ms"] for phase in ("aggregation", "distribution"))
    section.headline = (
        f"Of a step, aggregation lasts {span(aggregation)} ms and distribution {span(distribution)} ms on average over "
        f"{counted(frame.filter(phase='both').height, 'run')}; they overlap for {span(timed['mean_overlap_ms'])} ms."
    )
    first = timed["run_id"].unique(maintain_order=True).head(RUNS)
    shown = timed.filter(pl.col("run_id").is_in(first.implode()))
    caption = (
        "Workers send to servers in aggregation, servers to workers in distribution. The mark in the left "
        "chart is the time still to send when the phase's computation has ended, the mark in the right chart a model "
        "for each worker."
    )
    section.figure(charts.parameter_server_phases, shown, caption, of=frame)
    columns = [
        texts("run", "run_id"), texts("phase", "phase"), numbers("steps", "steps", count),
        numbers("lasts (ms, mean)", "mean_ms"), numbers("overlap (ms)", "mean_overlap_ms"),
        numbers("still to send (ms)", "mean_remaining_ms"), numbers("over so many steps", "remaining_steps", count),
        texts("measured by", "measured_by"),
    ]  # fmt: skip
    section.table(frame.drop_nulls("phase"), columns, "Times of the phases.", noun="row")


@chapter.section("server-transfers", "Transfers and volume of an iteration (section 2)", _SOURCE, _NO_SERVER)
def transfers(section: Section, frame: pl.DataFrame) -> None:
    both = section.need(frame.filter(phase="both"), _no_phases(frame))
    ratio = both["payload_ratio"].drop_nulls()
    volume = (
        f"and carries {span(ratio)} times 2·m·w, the volume of w models there and back"
        if len(ratio)
        else "and how that compares with 2·m·w is unknown without model_bytes in a run.toml"
    )
    section.headline = f"An iteration makes {span(both['transfers_ratio'])} times 2·n·w transfers, {volume}."
    columns = [
        texts("run", "run_id"), texts("phase", "phase"), numbers("servers (n)", "servers", count),
        numbers("workers (w)", "workers", count), numbers("model (m)", "model_size_bytes", size),
        numbers("transfers (mean)", "transfers"), numbers("expected", "expected_transfers"),
        numbers("of it", "transfers_ratio", percent), numbers("payload (mean)", "payload_bytes", size),
        numbers("expected payload", "expected_bytes", size), numbers("of the expected", "payload_ratio", percent),
        numbers("on the wire", "wire_bytes", size),
    ]  # fmt: skip
    caption = "Of an iteration, along with the expected n·w transfers and m·w bytes of a phase."
    section.table(frame.drop_nulls("phase"), columns, caption, noun="row")


def _no_phases(frame: pl.DataFrame) -> str:
    return (
        f"{counted(frame['run_id'].n_unique(), 'run')} with a parameter server, but no phases can be measured: they "
        "need a log of every worker, whose steps agree in time."
    )
