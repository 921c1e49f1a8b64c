"""Cheng: samples a second under delay, rate and loss of the links."""

from __future__ import annotations

import polars as pl

from ddnn_traces.report.charts import cheng as charts
from ddnn_traces.report.section import Chapter, Column, Section, Source, numbers, texts
from ddnn_traces.report.words import count, span
from ddnn_traces.text import counted

TRAININGS = 40
_CONDITIONS = {"delay_ms": "delay (ms)", "bandwidth_mbit": "rate (Mbit/s)", "loss_pct": "loss (%)"}
_OF_TRAINING = ["framework_backend", "topology", "model", "batch_size", "workers", "congestion_control"]
_NO_SWEEP = (
    "No two runs of one training differ in one condition of their links alone: declare delay_ms, bandwidth_mbit and "
    "loss_pct in run.toml, or make a sweep (docs/testbed.md)."
)

chapter = Chapter("cheng", "Cheng: conditions of the network")


@chapter.section("conditions", "Samples a second by condition (figs. 2 to 10)", Source("condition_response"), _NO_SWEEP)
def conditions(section: Section, frame: pl.DataFrame) -> None:
    known = section.need(
        frame.drop_nulls("samples_per_s"),
        f"Of {counted(int(frame['runs'].sum()), 'run')} that differ in one condition none finished.",
    )
    said = [
        f"{_CONDITIONS[str(condition)].split(' ')[0]} {span(rows['of_best'])}"
        for (condition,), rows in known.filter(pl.col("of_best") != 1).group_by("condition", maintain_order=True)
    ]
    section.headline = (
        f"Samples a second, as a share of those at the best value of the condition: {'; '.join(said)}."
        if said
        else "Trainings finished at one value of each condition only, so that nothing can be compared."
    )
    first = frame.select(_OF_TRAINING).unique(maintain_order=True).head(TRAININGS)
    caption = (
        "A panel shows one condition; the other two are at their best. Bars are 95% intervals, where there are several "
        "runs over these, otherwise over the steps of the run. A cross is a training of which no run did all its steps "
        "in its time limit."
    )
    shown = frame.join(first, on=_OF_TRAINING, how="semi", nulls_equal=True, maintain_order="left")
    section.figure(charts.samples_by_condition, shown, caption, of=frame, by=_OF_TRAINING, noun="training")
    columns = [
        Column("condition", lambda row: _CONDITIONS[row["condition"]]), numbers("value", "value"),
        texts("framework, backend", "framework_backend"), texts("model", "model"),
        numbers("batch (samples)", "batch_size", count), numbers("workers", "workers", count),
        texts("congestion control", "congestion_control"),
        Column("finished", lambda row: f"{row['finished_runs']} of {row['runs']}", is_number=True),
        numbers("samples/s", "samples_per_s"), numbers("95% from", "low_samples_per_s"),
        numbers("to", "high_samples_per_s"), numbers("of the best", "of_best"), numbers("from", "low_of_best"),
        numbers("to ", "high_of_best"),
    ]  # fmt: skip
    section.table(frame, columns, "Each training and condition, with 95% intervals.", noun="row")
