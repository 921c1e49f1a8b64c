"""The steps of the provenance: captured, generated, ingested."""

from __future__ import annotations

import json
from typing import Any

from ddnn_traces.query.dataset import Dataset
from ddnn_traces.release import provenance
from ddnn_traces.release.anonymise.method_text import describe
from ddnn_traces.release.descriptions import terms


def made(dataset: Dataset, runs: dict[str, tuple[str, dict[str, Any], dict[str, str]]]) -> list[Any]:
    """Steps but for the last two. runs: source, parameters and inputs by name."""
    rows = [{"run_id": name, "source": source} for name, (source, _, _) in runs.items()]
    ingested = {
        name: {"version": "1", "parameters": json.dumps(parameters), "inputs": json.dumps(inputs)}
        for name, (_, parameters, inputs) in runs.items()
    }
    return list(provenance.steps(dataset, rows, ingested, describe("roles", "kept", "shifted", None), {}, {}))[:-2]


def test_generated_tables_are_one_step_without_an_ingest(sample_dataset: Dataset) -> None:
    runs = {
        f"run-{seed}": ("synthetic", {"synthetic": {"seed": seed, "jitter": 0.5}}, dict[str, str]())
        for seed in range(3)
    }
    (step,) = made(sample_dataset, runs)
    assert step.kind == "generate"
    assert step.runs == ("run-0", "run-1", "run-2")
    assert step.parameters == {"synthetic": {"seed": [0, 1, 2], "jitter": 0.5}}
    assert "3 runs" in step.text
    assert "not measured" in step.text


def test_synthetic_captures_have_a_step_of_their_own(sample_dataset: Dataset) -> None:
    real = sample_dataset.run_ids[0]
    runs = {
        "one": ("synthetic", {"synthetic": {"seed": 1}}, {}),
        "two": ("synthetic", {"engine": "numba"}, {"a.pcap": "ab"}),
        real: ("capture", {"engine": "numba"}, {"b.pcap": "cd"}),
    }
    steps = made(sample_dataset, runs)
    assert [(step.kind, step.runs) for step in steps] == [
        ("capture", (real,)), ("generate", ("two",)), ("generate", ("one",)), ("ingest", (real,)), ("ingest", ("two",)),
    ]  # fmt: skip
    assert "1 run " in steps[3].text
    assert "1 run " in steps[4].text
    assert ("ynthetic" in steps[3].text, "ynthetic" in steps[4].text) == (False, True)
    assert steps[4].inputs == {"two/a.pcap": "ab"}


def test_hash_of_an_original_by_its_algorithm() -> None:
    """schema.org has a property for SHA-256 only."""
    assert terms.digest_property("ab" * 32) == {"sha256": "ab" * 32}
    assert terms.digest_property("blake3:" + "ab" * 32) == {"identifier": "blake3:" + "ab" * 32}
    assert terms.digest_property(None) == {}
