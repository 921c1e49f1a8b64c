"""How much is sent: against what the algorithm must move, by model, by flow."""

from __future__ import annotations

import polars as pl

from ddnn_traces.report.charts import farhat, zerwas
from ddnn_traces.report.number_text import count, counts, percent, size, span, times, words, yes_no
from ddnn_traces.report.section import NO_FLOWS, Chapter, Section, Source, numbers, texts
from ddnn_traces.text import counted

_TRANSFERS = Source("parameter_server_transfers")

NO_SERVER = (
    "No run has a parameter server: no host is declared as one (role in run.toml), and in no run that is declared a "
    "star or parameter_server is one host an end of nearly all payload."
)


chapter = Chapter("volume", "How much")


@chapter.section("conservation", "Expected and observed volume", Source("conservation"), finding="Volume", draws=())
def conservation(section: Section, frame: pl.DataFrame) -> None:
    columns = [
        texts("run", "run_id"), texts("topology", "topology", words), texts("problem", "problem"),
        texts("flagged", "flagged", yes_no), texts("law", "law", words),
        numbers("expected payload", "expected_bytes", size),
        numbers("payload in steps", "payload_bytes", size), numbers("spilled", "spilled_bytes", size),
        numbers("start-up in steps", "startup_in_steps_bytes", size),
        numbers("sent again", "retransmitted_bytes", size), numbers("framing", "framing_bytes", size),
        numbers("not captured", "missed_bytes", size),
        numbers("unexplained", "unexplained_bytes", size), numbers("unexplained share", "unexplained_share", percent),
        texts("not estimated", "not_estimated"), numbers("control", "control_bytes", size),
        numbers("headers", "header_bytes", size),
    ]  # fmt: skip
    caption = (
        "Payload of the pairs that carry the exchange, of all steps, against the law of the run's algorithm. "
        "Unexplained is payload in steps and spilled, less start-up, sent again, framing and expected payload, and "
        "what was not captured. What is not estimated is in it."
    )
    section.table(frame, columns, caption)
    problems = ", ".join(frame["problem"].drop_nulls().unique().sort().to_list()) or "no runs"
    judged = section.need(
        frame.drop_nulls("flagged"),
        f"No run can be compared with the volume that its algorithm must transmit ({problems}): that needs steps (a "
        "training log), a topology that is inferred from them, and model_bytes in a run.toml.",
    )
    worst = judged.sort(pl.col("unexplained_share").abs(), descending=True, maintain_order=True).row(0, named=True)
    section.headline = (
        f"{judged.height - judged['flagged'].sum()} of {counted(judged.height, 'run')} transmit the volume that the "
        f"algorithm must transmit to within 2%; the most that is unexplained is {percent(worst['unexplained_share'])}, "
        f"in {worst['run_id']}."
    )


@chapter.section(
    "model-volume",
    "Volume of each model and framework",
    Source("volume_by_model"),
    NO_FLOWS,
    reference="zerwas, fig. 3",
)
def volume_by_model(section: Section, frame: pl.DataFrame) -> None:
    known = section.need(
        frame.filter(pl.col("model") != "unknown"),
        f"{counted(int(frame['runs'].sum()), 'run')} of {span(frame['mean_wire_bytes'], size)}, but "
        "none declares its model: write model and model_bytes into a run.toml next to its captures and ingest it "
        "again.",
    )
    most = known.sort("mean_wire_bytes", descending=True, maintain_order=True).row(0, named=True)
    section.headline = (
        f"{counted(known.height, 'configuration')} of runs that should send the same: one transmits "
        f"{span(known['mean_wire_bytes'], size)} a run; the most, "
        f"{size(most['mean_wire_bytes'])}, {most['model']} with {most['setting']}."
    )
    caption = (
        "A panel a topology; a mark is the mean over the runs of one model and setting: framework, order, workers and "
        "steps, which are in the tooltips. Settings that these runs do not share are in the table as pooled."
    )
    noun = "configuration"
    parts = [section.part(known, frame, noun, ("model", "setting"))]
    section.figure(zerwas.volume_by_model, known, caption, parts=parts)
    columns = [
        texts("model", "model"), texts("setting", "setting"), numbers("runs", "runs", count), texts("pooled", "pooled"),
        numbers("model size (MB)", "model_mb"), numbers("on the cable in a step", "mean_step_cable_bytes", size),
        numbers("payload in a step, models", "step_model_sizes"),
        numbers("volume (mean)", "mean_wire_bytes", size), numbers("least", "least_wire_bytes", size),
        numbers("most", "most_wire_bytes", size),
    ]  # fmt: skip
    section.table(
        frame,
        columns,
        "Volume on the wire, of whole runs; that of a step is what was sent between its start and end.",
        noun=noun,
    )


@chapter.section("flow-counts", "Number of flows", Source("flow_counts"), reference="zerwas, fig. 5")
def flow_counts(section: Section, frame: pl.DataFrame) -> None:
    all_runs, frame = frame, section.need(frame.filter(pl.col("flows") > 0), NO_FLOWS)
    section.headline = (
        f"A run has {counts(frame['flows'], 'flow')}; 99% of its volume is in "
        f"{counts(frame['large_flows'], 'large flow')}. "
        f"Of the others, {counts(frame['acknowledgement_flows'], 'flow')} only acknowledge these, "
        f"and {counts(frame['side_flows'], 'flow')} carry other traffic."
    )
    caption = (
        "Flows are directed five-tuples, so a TCP connection is two. Large flows are the fewest that carry 99% "
        "of the run's bytes on the wire, except that an acknowledgement flow among them is counted as such: it goes "
        "back along a large flow with nearly no payload. Side flows are all others. Of several runs in a "
        "row bars are means."
    )
    section.figure(zerwas.flow_counts, frame, caption, has_rows=True, parts=[section.part(frame, all_runs)])


@chapter.section("flow-classes", "Small, medium and large flows", Source("flow_class_counts"), NO_FLOWS)
def flow_classes(section: Section, frame: pl.DataFrame) -> None:
    large = frame.filter(size_class="large")
    others = frame.filter(pl.col("size_class") != "large").group_by("run_id").agg(pl.col("flows").sum())
    are = "is in its largest class and carries" if large["flows"].max() == 1 else "are in its largest class and carry"
    section.headline = (
        f"{counts(large['flows'], 'flow')} of a run {are} "
        f"{span(large['share_of_wire_bytes'], percent)} of its volume; {counts(others['flows'], 'flow')} are medium or "
        "small."
    )
    caption = (
        "Classes are separated at the two widest gaps of a run's flow sizes, not by share of its volume as above; "
        "a bar extends from the smallest flow of a class to its largest, of all runs of a row."
    )
    section.figure(farhat.flow_classes, frame, caption, has_rows=True)


@chapter.section("flow-and-model", "Flow size and model size", Source("iteration_flow_size"))
def model_sizes(section: Section, frame: pl.DataFrame) -> None:
    known = section.need(
        frame.drop_nulls(["model_size_bytes", "mean_bytes"]),
        "No run has both a model size and a flow that carries data in steps: the size is model_bytes in a run.toml "
        "next to the captures, the steps are in the training's log.",
    )
    section.headline = (
        f"In an iteration a flow that carries data sends {span(known['ratio'], times)} the model's size on average, "
        f"over {counted(known.height, 'run')}."
    )
    caption = "Lines are one and two bytes on the wire for each byte of the model."
    section.figure(farhat.iteration_flow_size, known, caption, parts=[section.part(known, frame)])
    columns = [
        texts("run", "run_id"), texts("topology (declared)", "topology", words),
        numbers("model", "model_size_bytes", size), numbers("data flows", "data_flows", count),
        numbers("a flow's iteration (mean)", "mean_bytes", size), numbers("median", "median_bytes", size),
        numbers("of the model", "ratio"), numbers("payload of the model", "payload_ratio"),
        numbers("2(N-1)/N of a ring", "ring_ratio"),
    ]  # fmt: skip
    section.table(frame, columns, "Size of a data flow.")


@chapter.section(
    "server-transfers",
    "Transfers and volume of an iteration",
    _TRANSFERS,
    NO_SERVER,
    reference="chang, section 2",
    draws=(),
)
def transfers(section: Section, frame: pl.DataFrame) -> None:
    both = section.need(frame.filter(phase="both"), no_phases(frame))
    ratio = both["payload_ratio"].drop_nulls()
    volume = (
        f"and carries {span(ratio, times)} 2·m·w, the volume of w models there and back"
        if len(ratio)
        else "and how that compares with 2·m·w is unknown without model_bytes in a run.toml"
    )
    section.headline = f"An iteration makes {span(both['transfers_ratio'], times)} 2·n·w transfers, {volume}."
    columns = [
        texts("run", "run_id"), texts("phase", "phase"), numbers("servers (n)", "servers", count),
        numbers("workers (w)", "workers", count), numbers("model (m)", "model_size_bytes", size),
        numbers("transfers (mean)", "transfers"), numbers("expected", "expected_transfers"),
        numbers("of those expected", "transfers_ratio", percent), numbers("payload (mean)", "payload_bytes", size),
        numbers("expected payload", "expected_bytes", size), numbers("of what is expected", "payload_ratio", percent),
        numbers("on the wire", "wire_bytes", size),
    ]  # fmt: skip
    caption = "Of an iteration, along with the expected n·w transfers and m·w bytes of a phase."
    section.table(frame.drop_nulls("phase"), columns, caption, noun="row")


def no_phases(frame: pl.DataFrame) -> str:
    return (
        f"{counted(frame['run_id'].n_unique(), 'run')} with a parameter server, but no phases can be measured: they "
        "need a log of every worker, whose steps agree in time."
    )
