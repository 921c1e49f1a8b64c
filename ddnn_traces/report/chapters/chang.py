"""Chang: the phases and transfers of training with parameter servers."""

from __future__ import annotations

import polars as pl

from ddnn_traces.report.answers import Answers, figure
from ddnn_traces.report.charts import chang
from ddnn_traces.report.section import Section, Source, named, numbers, table
from ddnn_traces.report.words import count, digits_span, left_out, number, percent, size

RUNS = 40  # that a chart with two rows a run shows
_SOURCE = Source("parameter_server_transfers")
_NO_SERVER = (
    "No run has a parameter server: no host is declared as one (role in run.toml), and none is an end of nearly all "
    "payload of a run that is declared a star or parameter_server."
)


def phases(answers: Answers) -> Section:
    slug, title = "server-phases", "Aggregation and distribution (section 3, fig. 2)"
    frame = answers.frame(_SOURCE)
    told = frame.filter(pl.col("phase").is_in(["aggregation", "distribution"]))
    if frame.is_empty():
        return Section(slug, title, _NO_SERVER)
    problems = _problems(frame)
    if told.is_empty():
        return Section(slug, title, _untold(frame), sentences=problems)
    aggregation, distribution = (told.filter(phase=phase) for phase in ("aggregation", "distribution"))
    both = frame.filter(phase="both")
    headline = (
        f"Of a step, aggregation lasts {digits_span(aggregation['mean_ms'])} ms and distribution "
        f"{digits_span(distribution['mean_ms'])} ms on average over {number(both.height, 'run')}; they overlap for "
        f"{digits_span(told['mean_overlap_ms'])} ms."
    )
    runs = told["run_id"].unique(maintain_order=True)
    shown = told.filter(pl.col("run_id").is_in(runs.head(RUNS).implode()))
    caption = (
        "Aggregation is what workers send to servers, distribution what servers send to workers. The mark in the left "
        "chart is the time still to send when the phase's computation has ended, that in the right one a model for "
        f"each worker. {left_out(shown['run_id'].n_unique(), frame['run_id'].n_unique(), _SOURCE.query)}"
    )
    chart = figure("parameter_server_phases", chang.parameter_server_phases(shown), caption, [_SOURCE])
    columns = [
        named("run", "run_id"), named("phase", "phase"), numbers("steps", "steps", count),
        numbers("lasts (ms, mean)", "mean_ms"), numbers("overlap (ms)", "mean_overlap_ms"),
        numbers("still to send (ms)", "mean_remaining_ms"), numbers("over so many steps", "remaining_steps", count),
        named("known by", "measured_by"),
    ]  # fmt: skip
    values = table(frame.drop_nulls("phase"), columns, "Times of the phases.", _SOURCE, "row")
    return Section(slug, title, headline, [chart], [values], problems)


def transfers(answers: Answers) -> Section:
    slug, title = "server-transfers", "Transfers and volume of an iteration (section 2)"
    frame = answers.frame(_SOURCE)
    if frame.is_empty():
        return Section(slug, title, _NO_SERVER)
    both = frame.filter(phase="both")
    if both.is_empty():
        return Section(slug, title, _untold(frame))
    ratio = both["payload_ratio"].drop_nulls()
    volume = (
        f"and carries {digits_span(ratio)} times 2·m·w, the volume of w models there and back"
        if len(ratio)
        else "and how that compares with 2·m·w is unknown without model_bytes in a run.toml"
    )
    headline = f"An iteration makes {digits_span(both['transfers_ratio'])} times 2·n·w transfers, {volume}."
    columns = [
        named("run", "run_id"), named("phase", "phase"), numbers("servers (n)", "servers", count),
        numbers("workers (w)", "workers", count), numbers("model (m)", "model_size_bytes", size),
        numbers("transfers (mean)", "transfers"), numbers("expected", "expected_transfers"),
        numbers("of it", "transfers_ratio", percent), numbers("payload (mean)", "payload_bytes", size),
        numbers("expected payload", "expected_bytes", size), numbers("of the expected", "payload_ratio", percent),
        numbers("on the wire", "wire_bytes", size),
    ]  # fmt: skip
    caption = "Of an iteration, beside n·w transfers and m·w bytes a phase."
    return Section(slug, title, headline, tables=[table(frame.drop_nulls("phase"), columns, caption, _SOURCE, "row")])


def _untold(frame: pl.DataFrame) -> str:
    return (
        f"{number(frame['run_id'].n_unique(), 'run')} with a parameter server, but phases can be told in none: that "
        "needs a log of every worker, whose steps agree in time."
    )


def _problems(frame: pl.DataFrame) -> list[str]:
    return [f"{run_id}: {problem}" for run_id, problem in frame.drop_nulls("problem")["run_id", "problem"].iter_rows()]
