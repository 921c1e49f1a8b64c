"""How a finding of a paper is judged by data/dataset: our number, its interval and a verdict.

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
from dataclasses import dataclass
from functools import cache
from types import ModuleType

import polars as pl
from scipy import stats

from ddnn_traces.query.dataset import Dataset

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


_FINDINGS: list[Finding] = []
VERDICTS = {True: "agrees", False: "differs", None: "cannot be told"}


def finding(
    paper: str, sentence: str, why: str = ""
) -> Callable[[Callable[[Blocks], Found]], Callable[[Blocks], Found]]:
    """Decorator of a measure."""

    def declare(measure: Callable[[Blocks], Found]) -> Callable[[Blocks], Found]:
        _FINDINGS.append(Finding(paper, sentence, measure, why))
        return measure

    return declare


def findings_of(module: ModuleType) -> list[Finding]:
    """Those that a module declares, in its order."""
    return [one for one in _FINDINGS if one.measure.__module__ == module.__name__]


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
