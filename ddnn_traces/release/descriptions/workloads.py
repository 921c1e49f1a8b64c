"""workloads.yaml: a workload card for each run, a YAML document each, with the fields of CCL-Bench's template.

The values are those of the table runs, that is of the run's metadata (run.toml). A field that it does not have is null:
nothing is derived, and nothing is assumed. What CCL-Bench has no field for stands under `ddnn_traces`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ddnn_traces.errors import needs_extra
from ddnn_traces.release import facts
from ddnn_traces.release.descriptions import terms
from ddnn_traces.text import counted

#: Of CCL-Bench's workload_card_template.yaml.
VERSION = 1
_OWN = ("run_id", "source", "topology", "workers", "optimizer", "model_bytes", "model_size_mb", "delay_ms", "loss_pct",
        "bandwidth_mbit")  # fmt: skip


def text(release: facts.Release) -> str:
    """The cards, in the order of the runs. Raises MissingExtra."""
    with needs_extra():
        import yaml

    cards = [card(release, run) for run in release.runs]
    return str(yaml.safe_dump_all(cards, sort_keys=False, allow_unicode=True, width=110, explicit_start=True))


def card(release: facts.Release, run: Mapping[str, Any]) -> dict[str, Any]:
    """The workload card of a run, as YAML values."""
    about, known = release.about, run.get
    rate = known("bandwidth_mbit")
    return {
        "version": VERSION,
        "description": _description(run),
        "hf_url": None,
        "trace_url": terms.address(about),
        "contributor": "; ".join(person.name for person in about.creators),
        "contact": about.contact,
        "workload": {
            "model": {
                "phase": "training",
                "moe": None,
                "granularity": None,
                "model_family": known("model"),
                "precision": None,
                "epochs": known("epochs"),
                "iteration": None,
                "model_arch": {
                    "num_params": known("model_params"),
                    **dict.fromkeys(("num_params_embedding", "num_layers", "num_heads", "head_dim")),
                },
            },
            "data": {"batch_size": known("batch_size"), "seq_len": None, "dataset": None},
            "hardware": {
                "network_topo": {"topology": None, "bandwidth_gbps": None if rate is None else [rate / 1000]},
                "xpu_spec": dict.fromkeys(("type", "model", "total_count", "count_per_node")),
                "driver_version": None,
            },
        },
        "Model-executor": {
            "framework": {"name": known("framework"), "compiler_tool_selection": None},
            "model_plan_parallelization": dict.fromkeys(("dp_replicate", "dp_shard", "tp", "pp", "cp", "ep", "pp_mb")),
            "communication_library": {"name": known("backend"), "version": None, "env": None},
            "protocol_selection": None,
        },
        "metric_source": {"traces": ["parquet", *(["pcap"] if release.captures else [])]},
        "ddnn_traces": {name: known(name) for name in _OWN},
    }


def _description(run: Mapping[str, Any]) -> str:
    """What is known of a run in one sentence."""
    what = " ".join(str(run[name]) for name in ("framework", "model") if run.get(name))
    workers = [counted(run["workers"], "worker")] if run.get("workers") else []
    return ", ".join(filter(None, [f"Training run {run['run_id']}", what, *workers])) + "."
