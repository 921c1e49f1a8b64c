"""What zerwas found (sections IV to VI), and what data/dataset shows."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from itertools import pairwise

import polars as pl
from findings_rules import (
    CELL,
    GOSSIP,
    MARGIN,
    RING,
    SYNCHRONOUS,
    Blocks,
    Found,
    Interval,
    about,
    against,
    asked,
    correlation,
    finding,
    judged,
    number,
    ratio,
    ratio_of,
    volumes,
)

import ddnn_traces
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.regression import Regression


@finding("zerwas V.A", "The model is the main influence on the transmitted volume; their correlation is 0.97 (VI).")
def model_and_volume(blocks: Blocks) -> Found:
    frame = volumes(blocks["regression"])
    found = correlation(frame["model_bytes"], frame["step_bytes"])
    return judged(f"r = {found} of {found.values} cells", (found, about(0.97)))


@finding(
    "zerwas VI",
    "Equation (1) has R² 0.98, and 1 MB more of model is 5.7 MB more a step.",
    "Rings, trees, stars, binary tree stars, halving-doubling and pair averaging, as in the paper. Without pair "
    "averaging the slope is that of the all-reduce: 6 MB of payload for four workers, and headers.",
)
def slope(blocks: Blocks) -> Found:
    fit = _equation_1(blocks["regression"])
    found = _coefficient(fit, "model_bytes")
    without = _coefficient(_equation_1(blocks["synchronous"]), "model_bytes")
    text = f"R² {fit.r_squared:.3f}, slope {found} of {fit.runs} runs in {found.values} cells"
    text += f"; without pair averaging {without} of {without.values}"
    return judged(text, (found, about(5.7)))


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
    "By payload in steps: before them the weights are broadcast, which is more than 1% of runs of six steps.",
)
def large_flows(blocks: Blocks) -> Found:
    wanted = {"ring": 4, "tree": 6, "binary_tree_star": 6}
    in_steps = blocks["frameworks"].sql("""
        WITH sent AS (
            SELECT run_id, flow_id, sum(payload_bytes) AS own FROM step_flows WHERE position = 'during' GROUP BY ALL
        ), ranked AS (
            SELECT run_id, own, sum(own) OVER (PARTITION BY run_id ORDER BY own DESC, flow_id) - own AS larger,
                   sum(own) OVER (PARTITION BY run_id) AS whole
            FROM sent
        )
        SELECT run_id, count(*) AS large FROM ranked WHERE larger < 0.99 * whole GROUP BY run_id
    """)
    frame = _flows(blocks).filter(pl.col("topology").is_in(list(wanted))).join(in_steps, on="run_id")
    counts = frame.group_by("setting", "topology").agg(pl.col("large").unique().sort()).sort("setting")
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
    "On scikit-learn's digits, which are held out; a ratio a setting of part F whose workers wait for each other and "
    "whose runs all reach 0.9. Other workers have sent much before the first one's first step.",
)
def accuracy(blocks: Blocks) -> Found:
    frame = learning(blocks["learning"]).drop_nulls("MB to 0.9").filter(~pl.col("asynchronous"))
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
    runs = [frame.filter(side) for side in (GOSSIP, RING)]
    sides = [part.drop_nulls("wire_bytes")["wire_bytes"].to_list() for part in runs]
    if not all(sides):
        return Found("not both reach 0.8", None)
    found = ratio_of(*sides)
    reached = " and ".join(f"{len(side)} of {part.height} runs" for side, part in zip(sides, runs, strict=True))
    return judged(f"{found} of its volume until 0.8, which {reached} reach", (found, about(0.7)))
