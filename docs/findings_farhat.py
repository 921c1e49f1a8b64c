"""What farhat found (section 3), the laws of several ranks a host, and what data/dataset shows."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
from findings_rules import Blocks, Found, about, asked, correlation, finding, judged, number, ratio

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
    "Five warm-up batches of 205 are before training in the paper, one of four here. Agreement: within half a "
    "percent of the bytes, where each batch counts the same.",
)
def during(blocks: Blocks) -> Found:
    sizes = asked(blocks["models"], "iteration_flow_size").select("run_id", "model", "model_size_bytes")
    shares = blocks["models"].query("position_volume").filter(position="during").join(sizes, on="run_id")
    ours = ratio(
        [share * (OUR_BATCHES + OUR_WARM_UPS) / OUR_BATCHES for share in _of_models(shares)["share_of_wire_bytes"]]
    )
    low, high = (share * (FARHATS_BATCHES + FARHATS_WARM_UPS) / FARHATS_BATCHES for share in FARHATS_SHARES)
    raw = shares["share_of_wire_bytes"]
    text = (
        f"{raw.min():.1%} to {raw.max():.1%}; over the part of the batches that does not warm up {ours}, {ours.values} "
        f"models, and of the paper's {low:.3f} to {high:.3f}"
    )
    return judged(text, (ours, (low - 0.005, high + 0.005)))


@finding(
    "farhat 3",
    "The duration of an iteration does not follow the model's size (DenseNet121 as ResNet50).",
    "Computation is a tenth of times measured on one core, not a GPU's; the exchange at 1 Gbit/s dominates.",
)
def durations(blocks: Blocks) -> Found:
    frame = _of_models(blocks["models"].query("run_step_time")).sort("model_bytes")
    text = ", ".join(f"{model} {time:,.0f} ms" for model, time in frame["model", "step_ms"].rows())
    return Found(text, None)
