"""What simulators of training start from: profiles of models."""

from __future__ import annotations

import sys
from pathlib import Path

import click


@click.command()
@click.option("--model", required=True, metavar="NAME", help="A model of torchvision (below), or MODULE:FUNCTION.")
@click.option(
    "--out", required=True, type=click.Path(path_type=Path, dir_okay=False), help="CSV to write: a row for each layer."
)
@click.option("--batch-size", type=click.IntRange(min=1), default=4, help="Inputs of an iteration.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", help="cpu: one thread.")
@click.option("--repeat", type=click.IntRange(min=1), default=5, help="Iterations that are measured, after two others.")
@click.option("--input-shape", metavar="SIZES", help="Of one input. Default: 3,224,224, of inception_v3 3,299,299.")
@click.option(
    "--python", default=sys.executable, show_default="the one of ddnn-traces", metavar="PATH",
    help="A Python that has torch, and for models by name torchvision.",
)  # fmt: skip
def profile(out: Path, python: str, **wanted: str | int) -> None:
    """Measure the times of a model's layers by PyTorch's hooks, and its images a second.

    Models by name: mobilenet_v2, resnet50, resnet101, resnet200, densenet201, vgg16, vgg19, inception_v3, with random
    weights and inputs. MODULE:FUNCTION is a function of your own, in a module of this folder or on PYTHONPATH, that
    returns a torch.nn.Module.

    `compute = "sleep:OUT.csv"` in a matrix of the testbed runs with these times (docs/testbed.md).
    """
    from ddnn_traces.testbed import layer_profile
    from ddnn_traces.text import printable

    head = layer_profile.measure(layer_profile.Wanted(**wanted), out, python)  # type: ignore[arg-type]
    lines = [
        f"{head['model']} on {head['device']} ({head['versions']}), batch {head['batch']}",
        f"iteration {float(head['iteration_ms']):,.1f} ms, {head['images_per_s']} images/s, forward:backward "
        f"{head['forward:backward']}",
        f'{out}: written; next: compute = "sleep:{out}" in a matrix of ddnn-traces testbed run',
    ]
    for line in lines:
        click.echo(printable(line), err=True)
