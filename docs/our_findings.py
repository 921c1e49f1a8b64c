"""What the papers found and what data/dataset shows: a row a finding, with our number, its interval and a verdict.

A measure takes the datasets of the blocks (our_dataset.block) and returns what was found and whether that agrees. Means
of ratios are geometric, with a 95% interval by Student's t on their logarithms, a ratio a model or cell (Welch's t for
the runs of two cells). Runs of a cell are repeats of one setting: the unit is the mean of the cell. The verdict on
a number is equivalence (Schuirmann 1987): agrees where the whole interval is within the margin around the paper's
number, differs where none of it is, else it cannot be told, and the row says how many values would tell. Of one value
or two nothing can be told. Counts and orders agree where they are those of the paper.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import polars as pl
from scipy import stats

import ddnn_traces
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.regression import Regression

Blocks = Mapping[str, Dataset]


@dataclass(frozen=True)
class Found:
    """Our number as text; agrees: None where it cannot be told; needed: what would tell then."""

    text: str
    agrees: bool | None
    needed: str = ""


@dataclass(frozen=True)
class Finding:
    """A sentence of a paper. why: what differs in the testbed, or what would be needed, where that must be said."""

    paper: str
    sentence: str
    measure: Callable[[Blocks], Found]
    why: str = ""


FINDINGS: list[Finding] = []
VERDICTS = {True: "agrees", False: "differs", None: "cannot be told"}


def finding(
    paper: str, sentence: str, why: str = ""
) -> Callable[[Callable[[Blocks], Found]], Callable[[Blocks], Found]]:
    """Decorator of a measure."""

    def declare(measure: Callable[[Blocks], Found]) -> Callable[[Blocks], Found]:
        FINDINGS.append(Finding(paper, sentence, measure, why))
        return measure

    return declare


def rows(release: Path, blocks: Mapping[str, Sequence[str]]) -> list[tuple[str, str, str, str, str]]:
    """Paper, sentence, our number, verdict, and why, of each finding."""
    with ExitStack() as undo:
        opened = {name: undo.enter_context(ddnn_traces.open(release, runs=list(runs))) for name, runs in blocks.items()}
        found = [(entry, entry.measure(opened)) for entry in FINDINGS]
    return [
        (entry.paper, entry.sentence, one.text, VERDICTS[one.agrees], " ".join(filter(None, [one.needed, entry.why])))
        for entry, one in found
    ]  # fmt: skip


def measures() -> list[str]:
    """The name of each finding's measure, in the order of rows()."""
    return [entry.measure.__name__ for entry in FINDINGS]


@cache
def asked(dataset: Dataset, query: str) -> pl.DataFrame:
    """The result of a query, which several measures take."""
    return dataset.query(query)


# --- numbers


#: Of the paper's number, where a finding states no other range.
MARGIN = 0.05
#: Fewer values give no verdict.
LEAST_VALUES = 3


@dataclass(frozen=True)
class Interval:
    """A mean with its 95% interval; low and high are None with one value. values: how many, of this unit."""

    mean: float
    low: float | None
    high: float | None
    values: int
    unit: str = "models"

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{number(self.mean)} (one value)"
        return f"{number(self.mean)} [{number(self.low)}, {number(self.high)}]"

    def within(self, low: float, high: float) -> bool | None:
        """Whether the mean of all such values is in the range; None where that cannot be told."""
        if self.low is None or self.high is None or self.values < LEAST_VALUES:
            return None
        if low <= self.low and self.high <= high:
            return True
        return False if self.high < low or self.low > high else None

    def needed(self, low: float, high: float) -> str:
        """How many values would tell, with this mean and scatter."""
        if self.low is None or self.high is None or self.values < LEAST_VALUES:
            return f"At least {LEAST_VALUES} {self.unit} would tell: n = {self.values}."
        distance = min(abs(self.mean - low), abs(self.mean - high))
        if distance < 1e-9 * abs(self.mean):
            return f"No number of {self.unit} would tell, with this mean: n = {self.values}."
        least = math.ceil(self.values * ((self.high - self.low) / 2 / distance) ** 2)
        return f"About {least:,} {self.unit} would tell: n = {self.values}."


def about(value: float) -> tuple[float, float]:
    """The range of a paper's number."""
    return value * (1 - MARGIN), value * (1 + MARGIN)


def judged(text: str, *wanted: tuple[Interval, tuple[float, float]]) -> Found:
    """What was found, and whether each interval is in its range."""
    verdicts = [one.within(*limits) for one, limits in wanted]
    if False in verdicts or None not in verdicts:
        return Found(text, False not in verdicts)
    open_ones = [
        one.needed(*limits) for (one, limits), verdict in zip(wanted, verdicts, strict=True) if verdict is None
    ]
    return Found(text, None, " ".join(dict.fromkeys(open_ones)))


def number(value: float) -> str:
    """With three digits, near 1 with five, and without an exponent."""
    if abs(value) >= 100:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:.4f}" if 0.9 < value < 1.1 else f"{value:.3g}"


def ratio(values: Sequence[float]) -> Interval:
    """Geometric mean of ratios."""
    logs = [math.log(value) for value in values]
    mean = sum(logs) / len(logs)
    if len(logs) < 2:
        return Interval(math.exp(mean), None, None, len(logs))
    half = stats.t.ppf(0.975, len(logs) - 1) * stats.tstd(logs) / math.sqrt(len(logs))
    return Interval(math.exp(mean), math.exp(mean - half), math.exp(mean + half), len(logs))


def quotient(one: Mapping[str, float], other: Mapping[str, float]) -> Interval:
    """Of the speeds of two cells, rows of query sweep_cells; interval by the delta method, as in condition_response.

    No interval where a cell has none over runs: steps of one run are no sample of the cell.
    """
    mean = one["samples_per_s"] / other["samples_per_s"]
    if not one["interval_of"] == other["interval_of"] == "runs":
        return Interval(mean, None, None, int(min(one["finished_runs"], other["finished_runs"])), "runs of each")
    errors = [cell["step_error_ms"] / cell["step_ms"] for cell in (one, other)]
    means = min(one["means"], other["means"])
    factor = math.exp(float(stats.t.ppf(0.975, means - 1)) * math.hypot(*errors))
    return Interval(mean, mean / factor, mean * factor, int(means), "runs of each")


def correlation(x: pl.Series, y: pl.Series) -> Interval:
    """Pearson's, with Fisher's interval."""
    found = stats.pearsonr(x, y)
    low, high = found.confidence_interval(0.95)
    return Interval(float(found.statistic), float(low), float(high), len(x), "cells")


def ratio_of(one: Sequence[float], other: Sequence[float]) -> Interval:
    """Geometric mean of the runs of one cell over that of another; interval by Welch's t on their logarithms."""
    logs = [[math.log(value) for value in side] for side in (one, other)]
    mean = math.exp(sum(logs[0]) / len(logs[0]) - sum(logs[1]) / len(logs[1]))
    runs = min(len(side) for side in logs)
    if runs < 2:
        return Interval(mean, None, None, runs, "runs of each")
    ends = stats.ttest_ind(*logs, equal_var=False).confidence_interval(0.95)
    return Interval(mean, math.exp(ends.low), math.exp(ends.high), runs, "runs of each")


#: Columns that the runs of a cell have in common.
CELL = ["framework_backend", "topology", "model", "model_bytes", "batch_size"]


def volumes(dataset: Dataset) -> pl.DataFrame:
    """Bytes on the cable in a step, a row a cell, of the lossless runs of four workers with a topology."""
    frame = asked(dataset, "run_step_volume").filter(pl.col("loss_pct") == 0, pl.col("topology").is_not_null())
    controls = dataset.sql("SELECT run_id, congestion_control FROM runs WHERE congestion_control <> 'cubic'")
    runs = frame.join(controls, on="run_id")
    return runs.group_by(CELL, maintain_order=True).agg(pl.col("step_bytes").mean(), runs=pl.len())


def against(frame: pl.DataFrame, column: str, one: pl.Expr, other: pl.Expr, by: Sequence[str] = ("model",)) -> Interval:
    """Mean of `column` in the runs `one` over that in the runs `other`, a ratio for each value of `by`."""
    sides = [frame.filter(side).group_by(by).agg(pl.col(column).mean()) for side in (one, other)]
    both = sides[0].join(sides[1], on=by, suffix="_other")
    return ratio((both[column] / both[f"{column}_other"]).to_list())


#: Framework and topology of part A: the programs of PyTorch, and the paper's framework.
PYTORCH, TENSORFLOW = ("torchp2p-gloo", "parameter_server"), ("tf-grpc", "parameter_server")
BY_PYTORCH = "By torchp2p over gloo, where the paper has TensorFlow."
OF_TWO_DAYS = (
    "The runs with a batch of 32 and one worker are of another day and machine (PyTorch), which the ratio has in it."
)


def response(
    blocks: Blocks, condition: str, value: float, model: str, workers: int = 1, batch: int = 32, control: str = "bbr",
    setting: tuple[str, str] = PYTORCH,
) -> Interval:  # fmt: skip
    """Samples a second at a value of a condition, over those at its best (query condition_response)."""
    frame = asked(blocks["conditions"], "condition_response")
    row = frame.filter(
        condition=condition, value=value, model=model, workers=workers, batch_size=batch, congestion_control=control,
        framework_backend=setting[0], topology=setting[1],
    ).row(0, named=True)  # fmt: skip
    return Interval(row["of_best"], row["low_of_best"], row["high_of_best"], row["finished_runs"], "runs of each")


def base(blocks: Blocks, model: str, workers: int, batch: int, setting: tuple[str, str] = PYTORCH) -> dict[str, float]:
    """The cell of 1 ms, 1000 Mbit/s, no loss, of query sweep_cells."""
    cells = asked(blocks["conditions"], "sweep_cells").filter(
        delay_ms=1, bandwidth_mbit=1000, loss_pct=0, framework_backend=setting[0], topology=setting[1]
    )
    return cells.filter(model=model, workers=workers, batch_size=batch, congestion_control="bbr").row(0, named=True)


def speed(cell: Mapping[str, float]) -> Interval:
    """Samples a second of a cell."""
    return Interval(*(cell[f"{end}samples_per_s"] for end in ("", "low_", "high_")), int(cell["runs"]))


RING = pl.col("topology") == "ring"
GOSSIP = pl.col("topology").is_in(["gossip", "pair_averaging"])
SYNCHRONOUS = pl.col("topology").is_in(["ring", "tree", "star", "binary_tree_star", "halving_doubling"])


# --- zerwas


@finding("zerwas V.A", "The model is the main influence on the transmitted volume; their correlation is 0.97 (VI).")
def model_and_volume(blocks: Blocks) -> Found:
    frame = volumes(blocks["regression"])
    found = correlation(frame["model_bytes"], frame["step_bytes"])
    return judged(f"r = {found} of {found.values} cells", (found, about(0.97)))


@finding(
    "zerwas VI",
    "Equation (1) has R² 0.98, and 1 MB more of model is 5.7 MB more a step.",
    "Rings, trees, stars, binary tree stars, halving-doubling and pair averaging. Without pair averaging the slope is "
    "that of the all-reduce: 6 MB for four workers, and headers.",
)
def slope(blocks: Blocks) -> Found:
    fit = _equation_1(blocks["regression"])
    found = _coefficient(fit, "model_bytes")
    without = _coefficient(_equation_1(blocks["synchronous"]), "model_bytes")
    text = f"R² {fit.r_squared:.3f}, slope {found} of {fit.runs} runs in {found.values} cells"
    text += f"; without pair averaging {without} of {without.values}"
    return judged(text, (found, about(5.7)), (without, about(5.7)))


@finding(
    "zerwas VI",
    "Of frameworks and backends only pair averaging is significant; its coefficient is negative.",
    "Pair averaging counts as a topology here. Its difference grows with the model, so that one coefficient for all is "
    "a mean of these models. No effect of a framework: within 5% of the mean volume, in the synchronous runs.",
)
def pair_averaging_term(blocks: Blocks) -> Found:
    frame = volumes(blocks["regression"])
    means = [frame.filter(side).group_by("model").agg(pl.col("step_bytes").mean()) for side in (GOSSIP, ~GOSSIP)]
    both = means[0].join(means[1], on="model", suffix="_synchronous")
    less = (both["step_bytes"] - both["step_bytes_synchronous"]) / 1e6
    effects, limits, p = _effects(blocks, "C(framework_backend)")
    text = f"{number(less.max())} to {number(less.min())} MB a step by model; frameworks: {p}"  # type: ignore[arg-type]
    found = judged(text, *((effect, limits) for effect in effects))
    return Found(text, False, "") if less.max() >= 0 else found  # type: ignore[operator]


@finding(
    "zerwas VI",
    "Batch size and topology are not significant.",
    "No effect: within 5% of the mean volume, in the synchronous runs; the block of the finding above.",
)
def not_significant(blocks: Blocks) -> Found:
    parts = [_effects(blocks, term) for term in ("C(batch_size)", "C(topology)")]
    text = "; ".join(f"{name}: {p}" for name, (_, _, p) in zip(("batch", "topology"), parts, strict=True))
    return judged(text, *((effect, limits) for effects, limits, _ in parts for effect in effects))


def _effects(blocks: Blocks, term: str) -> tuple[list[Interval], tuple[float, float], str]:
    """Coefficients of a term of equation (1) in the synchronous runs, the range of no effect, and p in both blocks."""
    fits = [_equation_1(blocks[block]) for block in ("synchronous", "regression")]
    mean = float(volumes(blocks["synchronous"])["step_bytes"].mean())  # type: ignore[arg-type]
    effects = [
        Interval(one.estimate, one.ci_low, one.ci_high, fits[0].clusters, "cells")
        for one in fits[0].coefficients
        if one.term == term
    ]
    tests = [next(test for test in fit.tests if test.term == term) for fit in fits]
    p = [f"{test.p_value:.2g}" if test.p_value is not None else "not separable" for test in tests]
    most = max((abs(end) for one in effects for end in (one.low, one.high) if end is not None), default=0.0)
    text = (
        f"at most {100 * most / mean:.2g}% of the mean volume (p = {p[0]} of {fits[0].clusters} cells; with pair "
        f"averaging p = {p[1]} of {fits[1].clusters})"
    )
    return effects, (-MARGIN * mean, MARGIN * mean), text


@cache
def _equation_1(dataset: Dataset) -> Regression:
    return ddnn_traces.regress(dataset, preset="paper")


def _coefficient(fit: Regression, name: str) -> Interval:
    found = next(one for one in fit.coefficients if one.name == name)
    return Interval(found.estimate, found.ci_low, found.ci_high, fit.clusters, "cells")


@finding("zerwas V.A", "Pair averaging transmits about 30% less than synchronous training, with all models.")
def pair_averaging(blocks: Blocks) -> Found:
    found = against(volumes(blocks["frameworks"]), "step_bytes", GOSSIP, SYNCHRONOUS)
    return judged(f"{found} of their volume, {found.values} models", (found, about(0.7)))


@finding("zerwas V.A", "Another backend (NCCL in place of gRPC or MPI) does not change the volume.")
def backends(blocks: Blocks) -> Found:
    frame = volumes(blocks["frameworks"]).filter(RING, pl.col("batch_size") != 512)
    name = pl.col("framework_backend")
    mpi = against(frame, "step_bytes", name == "mpi-openmpi", name == "torch-gloo")
    grpc = against(frame, "step_bytes", name == "tf-grpc", name == "torch-gloo")
    text = f"rings: Open MPI over gloo {mpi} ({mpi.values} models), gRPC over gloo {grpc} ({grpc.values} models)"
    return judged(text, (mpi, about(1)), (grpc, about(1)))


@finding(
    "zerwas V.A",
    "In a ring the opposite direction has less than 1 GB for 566 GB: acknowledgements.",
    "Of the steps alone: before them DistributedDataParallel sends the weights the other way round.",
)
def opposite(blocks: Blocks) -> Found:
    dataset = blocks["frameworks"]
    lossless = dataset.sql("SELECT run_id FROM runs WHERE topology = 'ring' AND loss_pct = 0")
    links = dataset.query("ring_order").filter("is_ring").join(lossless, on="run_id")
    sent = dataset.sql(
        "SELECT run_id, src_ip, dst_ip, sum(s.wire_bytes)::BIGINT AS wire_bytes FROM step_flows AS s JOIN flows USING "
        "(run_id, flow_id) WHERE position = 'during' GROUP BY ALL"
    )
    forward = links.join(sent, left_on=["run_id", "host_ip", "next_host_ip"], right_on=["run_id", "src_ip", "dst_ip"])
    back = forward.join(
        sent, left_on=["run_id", "next_host_ip", "host_ip"], right_on=["run_id", "src_ip", "dst_ip"], suffix="_back"
    )
    runs = back.group_by("run_id").agg(pl.col("wire_bytes", "wire_bytes_back").sum())
    of_cells = (
        runs.join(asked(dataset, "run_step_volume"), on="run_id")
        .group_by(CELL)
        .agg(part=(pl.col("wire_bytes_back") / pl.col("wire_bytes")).mean())
    )
    found = replace(ratio(of_cells["part"].to_list()), unit="cells")
    return judged(f"{found} of the forward bytes in steps, {found.values} cells", (found, (0, 1 / 566)))


@finding(
    "zerwas V.B",
    "The number of flows is the same for all models, but for Horovod and KungFu's clique.",
    "Here also for the clique. Counted with payload: besides, workers try to connect to the rendezvous until its host "
    "listens, a flow each time.",
)
def same_flows(blocks: Blocks) -> Found:
    counts = _flows(blocks).group_by("setting").agg(pl.col("with_payload").unique().sort()).sort("setting")
    differing = counts.filter(pl.col("with_payload").list.len() > 1)
    names = ", ".join(f"{setting} {flows}" for setting, flows in differing.rows())
    same = f"the same in {counts.height - differing.height} of {counts.height} settings"
    return Found(f"{same}; not {names}" if names else same, differing.is_empty())


@finding(
    "zerwas V.B",
    "Four large flows carry 99% in a ring, six in binary tree stars and trees.",
    "In six steps the first broadcast of the weights by DistributedDataParallel, three flows, is more than 1%.",
)
def large_flows(blocks: Blocks) -> Found:
    wanted = {"ring": 4, "tree": 6, "binary_tree_star": 6}
    frame = _flows(blocks).filter(pl.col("topology").is_in(list(wanted)))
    counts = frame.group_by("setting", "topology").agg(pl.col("large_data_flows").unique().sort()).sort("setting")
    text = "; ".join(f"{setting} {', '.join(map(str, flows))}" for setting, _, flows in counts.rows())
    return Found(text, all(flows == [wanted[topology]] for _, topology, flows in counts.rows()))


def _flows(blocks: Blocks) -> pl.DataFrame:
    dataset = blocks["frameworks"]
    named = dataset.sql("SELECT run_id, topology, framework || ' ' || topology AS setting FROM runs WHERE loss_pct = 0")
    with_payload = pl.col("flows") - pl.col("flows_without_payload")
    return dataset.query("flow_counts").join(named, on="run_id").with_columns(with_payload=with_payload)


@finding(
    "zerwas V.C",
    "Smaller models have a lower mean throughput.",
    "A step has a pause of 50 ms in place of computation, whatever the model, so that this is by construction. Needed: "
    "models whose computation is their own.",
)
def throughput(blocks: Blocks) -> Found:
    frame = blocks["frameworks"].query("total_throughput").filter(pl.col("model").is_in(["mlp1", "mlp12"]))
    found = against(frame, "gbit_per_s", pl.col("model") == "mlp12", pl.col("model") == "mlp1", ["framework_setting"])
    return Found(f"mlp12 over mlp1: {found}", None)


@finding("zerwas V.C", "Synchronous training is clearly periodic, asynchronous training less so.")
def periodic(blocks: Blocks) -> Found:
    score = (
        blocks["frameworks"]
        .query("step_inference_score")
        .join(blocks["frameworks"].sql("SELECT run_id, topology FROM runs"), on="run_id")
    )
    shares = [score.filter(side) for side in (GOSSIP, ~GOSSIP)]
    text = [f"{part['structured'].sum()} of {part.height}" for part in shares]
    asynchronous, synchronous = (float(part["structured"].mean()) for part in shares)  # type: ignore[arg-type]
    return Found(
        f"steps are seen in the traffic of {text[1]} synchronous runs and {text[0]} with pair averaging",
        synchronous > asynchronous,
    )


@finding(
    "zerwas V.E",
    "The batch size does not change the volume of a step.",
    "The verdict is that of equation (1): within 5% of the mean volume, in the synchronous runs.",
)
def batch_volume(blocks: Blocks) -> Found:
    frame = volumes(blocks["frameworks"]).filter(framework_backend="torch-gloo", model="mlp4")
    parts = frame.sort("batch_size")["batch_size", "step_bytes", "runs"].rows()
    values = ", ".join(f"{volume / parts[0][1]:.4f}" for _, volume, _ in parts)
    effects, limits, p = _effects(blocks, "C(batch_size)")
    sizes = ", ".join(str(size) for size, _, _ in parts)
    least = parts[0][2]
    text = f"{p}; batch {sizes}: {values} of the first, {least} runs each"
    return judged(text, *((one, limits) for one in effects))


@finding("zerwas V.E", "A larger batch raises the ratio of computation to communication.")
def batch_valleys(blocks: Blocks) -> Found:
    frame = blocks["frameworks"].query("batch_burst_structure").filter(model="mlp4", framework_setting="torch-gloo")
    known = frame.drop_nulls("computation_to_communication").sort("batch_size")
    of_sizes = dict(known.group_by("batch_size", maintain_order=True).agg("computation_to_communication").rows())
    (first, *_, last) = of_sizes
    found = ratio_of(of_sizes[last], of_sizes[first])
    means = ", ".join(f"{size}: {sum(values) / len(values):.3g}" for size, values in of_sizes.items())
    return judged(f"{means}; {last} over {first}: {found}, {found.values} runs each", (found, (1, math.inf)))


def _durations(blocks: Blocks, control: str) -> dict[float, Interval]:
    """Of TensorFlow at each loss, over that without, as figure 10 has them."""
    runs = asked(blocks["frameworks"], "duration_by_loss").drop_nulls("normalised_duration").sort("loss_pct")
    of_cell = runs.filter(framework_setting="tf-grpc", model="mlp4", congestion_control=control)
    by_loss = dict(of_cell.group_by("loss_pct", maintain_order=True).agg("normalised_duration").rows())
    lossless = by_loss.pop(0.0)
    return {pct: ratio_of(values, lossless) for pct, values in by_loss.items()}


@finding(
    "zerwas V.F",
    "TensorFlow takes twice as long with 0.01% loss and eight times as long with 2%.",
    "The verdict is of cubic, which the paper's systems had. Frames of 64 KB (offload) at loss p lose one in 1/p "
    "frames, not in 1/p packets; on links of 0.1 ms a retransmission costs little; bbr slows down less at loss.",
)
def loss(blocks: Blocks) -> Found:
    cubic, bbr = _durations(blocks, "cubic"), _durations(blocks, "bbr")
    text = "; ".join(
        f"{name} " + ", ".join(f"{pct:g}%: {times}" for pct, times in found.items())
        for name, found in (("cubic", cubic), ("bbr", bbr))
    )
    return judged(text, (cubic[0.01], about(2)), (cubic[2.0], about(8)))


#: Steps over which the accuracy is a mean: on 359 pictures it jumps.
SMOOTH_STEPS = 5
#: Accuracies to reach on the pictures that are held out.
MARKS = (0.6, 0.8, 0.9)


@cache
def to_accuracy(dataset: Dataset) -> pl.DataFrame:
    """Volume and seconds until each run reaches each of MARKS, and its last accuracy, on held-out pictures."""
    parts = [
        dataset.query(
            "volume_to_accuracy", accuracy_of="held_out", smooth_steps=SMOOTH_STEPS, mark_low=low, mark_high=MARKS[-1]
        )
        for low in MARKS[:-1]
    ]
    settings = dataset.sql(
        "SELECT run_id, topology, batch_size, regexp_matches(run_id, '-async') AS asynchronous FROM runs"
    )
    return pl.concat(parts).unique(["run_id", "mark"], maintain_order=True).join(settings, on="run_id")


def learning(dataset: Dataset) -> pl.DataFrame:
    """A row a setting of part F: runs, and the means of volume (MB) and time (s) to each mark, where all reach it."""
    frame, by = to_accuracy(dataset), ["topology", "asynchronous", "batch_size"]
    parts = frame.group_by(by, maintain_order=True).agg(
        runs=pl.col("run_id").n_unique(), best_accuracy=pl.col("best_accuracy").mean()
    )
    for mark in MARKS:
        of_mark = frame.filter(mark=mark).group_by(by).agg(
            pl.when(pl.col("is_reached").all()).then(pl.col("wire_bytes").mean() / 1e6).alias(f"MB to {mark:g}"),
            pl.when(pl.col("is_reached").all()).then(pl.col("elapsed_s").mean()).alias(f"s to {mark:g}"),
        )  # fmt: skip
        parts = parts.join(of_mark, on=by, maintain_order="left")
    return parts


@finding(
    "zerwas V.D",
    "Accuracy rises with the transmitted volume, with diminishing gains.",
    "On scikit-learn's digits, which are held out; a ratio a setting of part F whose runs all reach 0.9.",
)
def accuracy(blocks: Blocks) -> Found:
    frame = learning(blocks["learning"]).drop_nulls("MB to 0.9")
    first, second = (
        (pl.col(f"MB to {high:g}") - pl.col(f"MB to {low:g}")) / (high - low) for low, high in pairwise(MARKS)
    )
    found = replace(ratio(frame.select(second / first).to_series().to_list()), unit="settings")
    text = f"a point of accuracy from 0.8 to 0.9 takes {found} times the bytes of one from 0.6 to 0.8"
    return judged(f"{text}, {found.values} settings", (found, (1, math.inf)))


@finding(
    "zerwas V.D",
    "Pair averaging reaches the same accuracy with about 30% less data.",
    "On scikit-learn's digits, against a ring with the same batches; accuracy of the first worker's model.",
)
def accuracy_saving(blocks: Blocks) -> Found:
    frame = to_accuracy(blocks["learning"]).filter(pl.col("mark") == 0.8, pl.col("batch_size") == 32)
    sides = [frame.filter(side).drop_nulls("wire_bytes")["wire_bytes"].to_list() for side in (GOSSIP, RING)]
    if not all(sides):
        return Found("not both reach 0.8", None)
    found = ratio_of(*sides)
    return judged(f"{found} of its volume until 0.8, {found.values} runs each", (found, about(0.7)))


# --- farhat

#: Batches that a run of farhat trains, and those that warm up before (section 2.1.2).
FARHATS_BATCHES, FARHATS_WARM_UPS = 200, 5
#: The same of ours.
OUR_BATCHES, OUR_WARM_UPS = 3, 1
#: Bytes during training by its figure 3, the least and the most of five models.
FARHATS_SHARES = (0.9711, 0.9737)


def _of_models(frame: pl.DataFrame) -> pl.DataFrame:
    """Means over the runs of each model, in the order of the models' sizes."""
    size = "model_bytes" if "model_bytes" in frame.columns else "model_size_bytes"
    return frame.group_by("model").agg(pl.selectors.numeric().mean()).sort(size)


@finding("farhat 3", "The ring's order is that of the hosts in the command line (Open MPI).")
def ring_order(blocks: Blocks) -> Found:
    parts = [blocks[name].query("ring_comparison") for name in ("models", "frameworks")]
    frame = pl.concat(parts).filter(pl.col("run_id").str.starts_with("mpi-"))
    same = int((frame["ring_order"] == "same").sum())
    return Found(f"in {same} of {frame.height} runs", same == frame.height)


@finding(
    "farhat 3",
    "A flow sends about twice the model in an iteration.",
    'Agreement: within 10% of two models, the paper\'s "around twice". Four ranks on each of four hosts, as its four '
    "GPUs on each of four servers: 2(NL-1)/(NL) of N hosts with L ranks is 1.875.",
)
def flow_size(blocks: Blocks) -> Found:
    frame = _of_models(asked(blocks["models"], "iteration_flow_size"))
    found = ratio(frame["payload_ratio"].to_list())
    by_law = (frame["payload_ratio"] / frame["ring_ratio"]).to_list()
    text = (
        f"{found} of the model, {found.values} models: {number(min(by_law))} to {number(max(by_law))} of the law of a "
        "ring of 16 ranks"
    )
    return judged(text, (found, (1.8, 2.2)))


@finding(
    "collective_laws",
    "A host sends 2(N-1)/N of the model where one rank speaks for it, and in a ring of all ranks 2(NL-1)/(NL).",
    "Not from a paper: the laws that conservation compares, with two ranks on each of four hosts.",
)
def hierarchical(blocks: Blocks) -> Found:
    frame = asked(blocks["ranks"], "iteration_flow_size")
    ours = {name: rows["payload_ratio"].to_list() for (name,), rows in frame.group_by("topology")}
    one, every = (replace(ratio(ours[name]), unit="runs") for name in ("hierarchical_ring", "ring"))
    return judged(f"{one}; a ring of all ranks {every}", (one, about(1.5)), (every, about(1.75)))


@finding("farhat 3", "The size of flows is linear in the model's.")
def linear(blocks: Blocks) -> Found:
    frame = _of_models(asked(blocks["models"], "iteration_flow_size"))
    found = correlation(frame["model_size_bytes"], frame["mean_payload_bytes"])
    return judged(f"r = {found} of {found.values} models", (found, (0.95, 1)))


@finding(
    "farhat 3",
    "97.1 to 97.4% of the bytes are sent during training.",
    "Five warm-up batches of 205 are before training in the paper, one of four here. Agreement: within a percent of "
    "the bytes, where each batch counts the same.",
)
def during(blocks: Blocks) -> Found:
    sizes = asked(blocks["models"], "iteration_flow_size").select("run_id", "model", "model_size_bytes")
    shares = blocks["models"].query("position_volume").filter(position="during").join(sizes, on="run_id")
    ours = ratio(
        [share * (OUR_BATCHES + OUR_WARM_UPS) / OUR_BATCHES for share in _of_models(shares)["share_of_wire_bytes"]]
    )
    low, high = (share * (FARHATS_BATCHES + FARHATS_WARM_UPS) / FARHATS_BATCHES for share in FARHATS_SHARES)
    text = (
        f"{ours} of the bytes without the warm-up, {ours.values} models; the paper's without it {low:.1%} to {high:.1%}"
    )
    return judged(text, (ours, (low - 0.01, high + 0.01)))


@finding(
    "farhat 3",
    "The duration of an iteration does not follow the model's size (DenseNet121 as ResNet50).",
    "Computation is a tenth of times measured on one core, not a GPU's; the exchange at 1 Gbit/s dominates.",
)
def durations(blocks: Blocks) -> Found:
    frame = _of_models(blocks["models"].query("run_step_time")).sort("model_bytes")
    text = ", ".join(f"{model} {time:,.0f} ms" for model, time in frame["model", "step_ms"].rows())
    return Found(text, None)


# --- cheng


@finding(
    "cheng 4.1",
    "10 ms of latency in place of 1 ms costs an order of magnitude of throughput.",
    "The verdict is of TensorFlow's parameter server, the rest is by torchp2p over gloo. The paper's testbed is not "
    "described in enough detail to say which transport made a step wait so often; here a step waits for a few round "
    "trips, and the larger models for computation.",
)
def ten_ms(blocks: Blocks) -> Found:
    found = {model: response(blocks, "delay_ms", 10, model) for model in ("mlp1", "resnet_like", "mobilenet_like")}
    of_paper = response(blocks, "delay_ms", 10, "mlp1", setting=TENSORFLOW)
    text = "; ".join(f"{model} {one}" for model, one in found.items())
    return judged(f"TensorFlow mlp1 {of_paper}; PyTorch {text}", (of_paper, (0, 0.15)))


@finding(
    "cheng 4.1",
    "ResNet does no step in 30 minutes at 100 ms.",
    f"{BY_PYTORCH} Our limit was two minutes; the model is small (4.8 MB).",
)
def hundred_ms(blocks: Blocks) -> Found:
    cells = asked(blocks["conditions"], "sweep_cells")
    frame = cells.filter(delay_ms=100, model="resnet_like", batch_size=32, workers=1)
    row = frame.row(0, named=True)
    found = response(blocks, "delay_ms", 100, "resnet_like")
    return Found(
        f"{row['finished_runs']} of {row['runs']} runs finish, at {found} of the samples/s of 1 ms",
        row["finished_runs"] == 0,
    )


@finding(
    "cheng 4.1",
    "Throughput grows with the batch: 1024 gives about 30 times that of 32 (ResNet 324 and 10.9/s).",
    f"{BY_PYTORCH} {OF_TWO_DAYS} On two cores ResNet is bound by computation at a batch of 32 already.",
)
def batches(blocks: Blocks) -> Found:
    text, ratios = [], []
    for model in ("mlp1", "resnet_like"):
        large, small = base(blocks, model, 1, 1024), base(blocks, model, 1, 32)
        ratios.append(quotient(large, small))
        text.append(f"{model} {ratios[-1]} times ({number(large['samples_per_s'])} samples/s)")
    return judged("; ".join(text), *((one, about(30)) for one in ratios))


@finding(
    "cheng 4.1",
    "Three workers give less throughput than one (ImageNet: 1.17 and 5.3 images/s).",
    "mlp1 by TensorFlow's parameter server, resnet_like by torchp2p over gloo. Samples a second of all workers "
    f"together. The paper does not say whether it counts so. {OF_TWO_DAYS}",
)
def three_workers(blocks: Blocks) -> Found:
    text, ratios = [], []
    for model, setting in (("mlp1", TENSORFLOW), ("resnet_like", PYTORCH)):
        three, one = (base(blocks, model, workers, 32, setting) for workers in (3, 1))
        ratios.append(quotient(three, one))
        text.append(f"{model} {speed(three)} with three, {speed(one)} with one: {ratios[-1]}")
    return judged("; ".join(text), *((one, (0, 1)) for one in ratios))


@finding(
    "cheng 4.2",
    "500 Mbit/s in place of 1000 cost MLP little (231 of 247 images/s), MobileNet most (2.5 of 87.6).",
    "The verdict on MLP is of TensorFlow, that on MobileNet of torchp2p over gloo, whose 1.8 MB count less beside its "
    "computation. A step of MLP by PyTorch is little but its 0.94 MB in each direction; its runs are of two days.",
)
def half_rate(blocks: Blocks) -> Found:
    found = {model: response(blocks, "bandwidth_mbit", 500, model) for model in ("mlp1", "mobilenet_like")}
    of_paper = response(blocks, "bandwidth_mbit", 500, "mlp1", setting=TENSORFLOW)
    text = "; ".join(f"{model} {one}" for model, one in found.items())
    verdicts = (of_paper, about(231 / 247)), (found["mobilenet_like"], (0, 0.1))
    return judged(f"TensorFlow mlp1 {of_paper}; PyTorch {text}", *verdicts)


@finding(
    "cheng 4.2",
    "With three workers ResNet's throughput is proportional to the rate (0.4, 0.2, 0.12 images/s).",
    f"{BY_PYTORCH} Computation is a part of a step here; the paper's communication is far longer (4.2).",
)
def proportional(blocks: Blocks) -> Found:
    half, quarter = (response(blocks, "bandwidth_mbit", rate, "resnet_like", workers=3) for rate in (500, 250))
    return judged(f"500: {half}; 250: {quarter}", (half, (0.45, 0.55)), (quarter, (0.2, 0.32)))


@finding(
    "cheng 4.3",
    "Each percent of loss costs MLP, MobileNet and ResNet about 10%.",
    f"{BY_PYTORCH} The verdict is of cubic, at 1 ms; bbr does not take loss for congestion.",
)
def one_percent(blocks: Blocks) -> Found:
    cubic = {model: response(blocks, "loss_pct", 1, model, control="cubic") for model in ("mlp1", "resnet_like")}
    bbr = {model: response(blocks, "loss_pct", 1, model) for model in ("mlp1", "mobilenet_like", "resnet_like")}
    tensorflow = {"mlp1": response(blocks, "loss_pct", 1, "mlp1", setting=TENSORFLOW)}
    text = "; ".join(
        f"{name}: {', '.join(f'{model} {one}' for model, one in found.items())}"
        for name, found in (("cubic", cubic), ("bbr", bbr), ("TensorFlow, bbr", tensorflow))
    )
    return judged(text, *((one, (0.85, 0.95)) for one in cubic.values()))


@finding(
    "cheng 4.3",
    "With three workers 10% of loss costs MLP more than 95%, and ResNet does no step in 20 minutes.",
    f"{BY_PYTORCH} Our limit was one minute.",
)
def ten_percent(blocks: Blocks) -> Found:
    dataset = blocks["conditions"]
    cells = asked(dataset, "condition_response").filter(condition="loss_pct", value=10, workers=3)
    found = dict(cells.filter(congestion_control="cubic").sort("model")["model", "of_best"].rows())
    lossy = dataset.sql(
        "SELECT run_id, model FROM runs WHERE loss_pct = 10 AND workers = 3 AND congestion_control = 'cubic'"
    )
    done = dataset.sql("FROM steps").group_by("run_id").agg(steps=pl.col("step").n_unique())
    of_runs = (
        lossy.join(done, on="run_id", how="left").with_columns(pl.col("steps").fill_null(0)).sort("model", "steps")
    )
    steps = dict(of_runs.group_by("model").agg("steps").rows())
    parts = [
        f"{model} {f'{share:.3g} of the lossless' if share else 'did not finish'}, steps of each run "
        f"{', '.join(map(str, steps[model]))}"
        for model, share in found.items()
    ]
    agrees = not any(steps["resnet_like"]) and (found["mlp1"] or 0) <= MARGIN
    return Found(f"cubic: {'; '.join(parts)}", agrees)


@finding(
    "cheng 5",
    "Models that compute much are more sensitive to the network than MLP.",
    f"{BY_PYTORCH} On two cores convolutions take long, and what is not communication does not wait for the network.",
)
def sensitive(blocks: Blocks) -> Found:
    values = {
        (condition, model): response(blocks, condition, value, model)
        for condition, value in (("delay_ms", 100), ("bandwidth_mbit", 250))
        for model in ("mlp1", "resnet_like")
    }
    text = "; ".join(f"{model}, {condition}: {value}" for (condition, model), value in values.items())
    pairs = [(values[name, "resnet_like"], values[name, "mlp1"]) for name in ("delay_ms", "bandwidth_mbit")]
    return judged(text, *((resnet, (0, mlp.low if mlp.low is not None else mlp.mean)) for resnet, mlp in pairs))


@finding(
    "cheng 4.4",
    "Workers wait for a failed one to restart; if the chief ends, training restarts from a checkpoint.",
    "TensorFlow of the paper's time; see the table of faults.",
)
def chief(blocks: Blocks) -> Found:
    frame = blocks["faults"].query("fault_recovery").filter(pl.col("framework_backend") == "tf-grpc")
    restarted = frame.filter(pl.col("is_restarted"))
    went_on = frame.filter(~pl.col("is_restarted"))
    text = f"started again from outside in {restarted.height} of {frame.height} TensorFlow runs; not needed when "
    text += (
        " and ".join(f"{killed} of {topology}" for killed, topology in sorted({*went_on["killed", "topology"].rows()}))
        + " was killed"
    )
    by_chief = restarted.filter(pl.col("role") == "chief")
    return Found(text, not by_chief.is_empty() and by_chief["finished"].all())
