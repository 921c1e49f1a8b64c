"""What cheng found (sections 3 and 4), and what data/dataset shows."""

from __future__ import annotations

import polars as pl
from findings_rules import (
    BY_PYTORCH,
    MARGIN,
    OF_TWO_DAYS,
    PYTORCH,
    TENSORFLOW,
    Blocks,
    Found,
    about,
    asked,
    base,
    finding,
    judged,
    number,
    quotient,
    response,
    speed,
)


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
