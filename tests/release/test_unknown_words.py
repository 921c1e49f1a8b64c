"""Free text of a release: words of the vocabulary pass, anything else is withheld or confirmed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import polars as pl
import pytest
from damages import found
from publishing import ABOUT
from tools import script

import ddnn_traces
from ddnn_traces.errors import LeakError
from ddnn_traces.release import publish, request
from ddnn_traces.release.anonymise import words
from ddnn_traces.release.verify.examined import FAILED
from ddnn_traces.store import schema

ROOT = Path(__file__).parents[2]
PLANTED = script("benchmarks/planted_secrets.py")

KNOWN = (
    "torchp2p-mlp1-sgd-32-gloo-loss_1-ps-n1-1ms-cubic-r1", "resnet-50", "ResNet50", "llama-3.1-8b-instruct", "vit_b_16",
    "mobilenet_v2", "ViT-L/16", "opt-125m", "bucket 0", "to 3", "workers and servers", "steps 16", "worker-12",
    "dense/kernel:0", "layer1.0.conv2.weight", "features.denseblock1.denselayer2.norm1.weight", "torch-2.1", "loss05",
    "n3-elastic-killed_host_worker1-checkpoint", "fifo-barrier", "100gbit-rdma", "tf-mlp4-sgd-32-grpc-loss_0.01-ring",
    "torchp2p-mlp0-sgd-32-gloo-normal-ps-n4-digits-async-r2",
)  # fmt: skip


@pytest.mark.parametrize("text", KNOWN)
def test_names_of_models_and_settings_are_known(text: str) -> None:
    assert words.unknown(text, {32}) == []


UNKNOWN = {
    "resnet50-alicenet-n4": ["alicenet"],
    "mlp1-gpu17": ["gpu17"],
    "mlp1-gpu[001-004,007]-n4": ["001-004,007"],
    "job 482913": ["482913"],
    "run-2026-W47": ["2026-W47"],
    "mlp1-w47": ["w47"],
    "mlp1-n10-n20-n30-n7": ["n10-n20-n30-n7"],
    "10ms 20ms 30ms 7ms": ["10ms 20ms 30ms 7ms"],
    "run-20261120": ["20261120"],
    "0254.036.0036.051": ["0254.036.0036.051"],
    "mlp1-64": ["64"],
    "/data/model/train": ["data/model/train"],
    "48.2082,16.3738": ["48.2082,16.3738"],
    "ring-1-2-3": ["2-3"],
    "alice_BOB-7": ["alice_BOB-7"],
}


@pytest.mark.parametrize("text", UNKNOWN)
def test_what_is_not_known_is_found_as_one_part(text: str) -> None:
    assert [text[start:end] for start, end in words.unknown(text, {32})] == UNKNOWN[text]


def test_a_number_is_known_where_a_field_states_it_and_a_word_where_it_is_confirmed() -> None:
    assert words.unknown("mlp1-64", {64}) == []
    assert words.unknown("mlp1-Alice Net-gpu[1-4]", (), ["alice net", "GPU[1-4]"]) == []
    assert words.unknown("alicenetwork", (), ["alicenet"]) == [(0, 12)]


@pytest.mark.parametrize(
    "text",
    [
        "Training of 12 models, ResNet-50 among them, on 1,024 workers at 10 Gbit/s: see run.toml.",
        "All-reduce with n4, 3-5 runs each (2021 and 2026), 0.25% loss; the users' own words.",
    ],
)
def test_plain_prose_passes(text: str) -> None:
    assert words.unknown_in_prose(text) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("made on 2026-11-20", ["2026-11-20"]),
        ("made on 20 November 2026", ["November"]),
        ("made on Nov 20, 2026", ["20"]),
        ("on gpu[001-004] and r17c3s2.", ["gpu[001-004", "r17c3s2"]),
        ("call +43 1 58801 12345", ["+43", "1", "58801", "12345"]),
        ("call (555) 867-5309", ["867-5309"]),
        ("of BlackSwan, @alice and /data/model/x", ["BlackSwan", "@alice", "/data/model/x"]),
        ("Runs in week 47, after 3 weeks of work", ["47"]),
    ],
)
def test_what_is_no_plain_word_is_found_in_prose(text: str, found: list[str]) -> None:
    assert words.unknown_in_prose(text) == found


def test_in_the_strict_profile_plain_words_are_those_of_this_program() -> None:
    stated = {"description": "Traffic of athena, by Ada Lovelace.", "creators": [{"name": "Ada Lovelace"}]}
    request.refuse_unknown_words(stated, (), only_known=False)
    with pytest.raises(LeakError, match=r"description: athena\n"):
        request.refuse_unknown_words(stated, (), only_known=True)
    request.refuse_unknown_words(stated, ["Athena"], only_known=True)


def test_the_shipped_runs_have_no_unknown_word() -> None:
    """0 false alarms: no name, model, setting or event of data/dataset and data/sample, and no word of its prose."""
    with ddnn_traces.open(schema.shipped_folder("data") / "dataset") as dataset:
        texts = words.free_texts(dataset)
        assert {what for _, what, _ in texts} == {
            "name of a run", "name of an event", "framework", "backend", "model", "optimizer", "topology",
            "congestion_control", "variant", "split",
        }  # fmt: skip
        assert words.unknown_of(dataset) == {}
    request.refuse_unknown_words(request.read(ROOT / "data/dataset_release.toml", {}), (), only_known=False)
    batches = {32, 128}  # each name states its own
    assert [
        run.name for run in (ROOT / "data/sample").iterdir() if run.is_dir() and words.unknown(run.name, batches)
    ] == []


@pytest.fixture(scope="module")
def own(sample: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset whose run has words of its own."""
    folder = tmp_path_factory.mktemp("own")
    run = Path(shutil.copytree(sample / "torch-mlp1-sgd-32-gloo-0ms-ring", folder / "in" / "alicenet-r1"))
    with (run / "run.toml").open("a") as file:
        file.seek(0)
        text = (run / "run.toml").read_text()
        file.truncate(0)
        file.write('model = "alicenet"\nvariant = "n4-job 482913"\n' + text[text.index("[[hosts]]") :])
    ddnn_traces.ingest(folder / "in", folder / "dataset").close()
    return folder / "dataset"


def _row(release: Path) -> dict[str, object]:
    with ddnn_traces.open(release) as dataset:
        return dataset.sql("SELECT run_id, model, variant FROM runs").row(0, named=True)


def test_unknown_words_are_withheld_and_published_where_confirmed(own: Path, tmp_path: Path) -> None:
    key = tmp_path / "key"
    ddnn_traces.publish(own, tmp_path / "careful", key=key, **ABOUT)
    tagged = _row(tmp_path / "careful")
    tag = str(tagged["model"])
    assert len(tag) == 8
    assert bytes.fromhex(tag)
    assert tagged["run_id"] == f"{tag}-r1", "the same tag wherever the word is"
    assert str(tagged["variant"]).startswith("n4-job ")
    assert "482913" not in str(tagged)
    # what the tables have is what release.json and the texts state; other tests verify whole releases
    checks = ("anonymisation", "runs", "card", "datasheet", "citation", "workloads", "explorer", "agreement")
    rows = found(tmp_path / "careful", tmp_path / "scratch", *checks)
    assert {row.check for row in rows} >= set(checks) and FAILED not in {row.status for row in rows}
    ddnn_traces.publish(own, tmp_path / "allowed", key=key, allow=["Alicenet"], **ABOUT)
    assert _row(tmp_path / "allowed") | {"variant": ""} == {"run_id": "alicenet-r1", "model": "alicenet", "variant": ""}
    ddnn_traces.publish(own, tmp_path / "kept", key=key, words="kept", **ABOUT)
    assert _row(tmp_path / "kept")["variant"] == "n4-job 482913"


def test_careful_asks_on_a_terminal_and_strict_does_not(own: Path, tmp_path: Path) -> None:
    asked = []

    def ask(question: str) -> str:
        asked.append(question)
        return "alicenet, no such word"

    for profile in ("careful", "strict"):
        publish.publish(own, tmp_path / profile, publish.PublishOptions(profile=profile, **ABOUT), ask=ask)  # type: ignore[arg-type]
    assert len(asked) == 1
    assert "'alicenet' (model, name of a run)" in asked[0]
    assert "'482913' (variant)" in asked[0]
    assert _row(tmp_path / "careful")["model"] == "alicenet"
    assert _row(tmp_path / "strict")["model"] != "alicenet"


def test_an_unknown_split_of_the_metadata_is_refused(own: Path, tmp_path: Path) -> None:
    """Unless it is given for the release."""
    shutil.copytree(own.parent / "in", tmp_path / "in")
    path = tmp_path / "in" / "alicenet-r1" / "run.toml"
    path.write_text('split = "zeus"\n' + path.read_text())
    ddnn_traces.ingest(tmp_path / "in", tmp_path / "dataset").close()
    with pytest.raises(LeakError, match="split zeus: in no vocabulary; confirm it with `allow` WORD"):
        ddnn_traces.publish(tmp_path / "dataset", tmp_path / "release", **ABOUT)
    ddnn_traces.publish(tmp_path / "dataset", tmp_path / "release", splits=["zeus=alicenet-r1"], **ABOUT)
    with ddnn_traces.open(tmp_path / "release") as dataset:
        assert dataset.sql("SELECT split FROM runs").item() == "zeus"


# --- planted secrets


@pytest.mark.parametrize("profile", PLANTED.PROFILES)
def test_of_planted_secrets_none_is_published(profile: str, tmp_path: Path) -> None:
    """One of each class, in every place of a run."""
    secrets = [next(s for s in PLANTED.corpus() if s.kind == kind) for kind in PLANTED.CLASSES]
    outcome = PLANTED.publish(secrets, profile, tmp_path / "work")
    assert (outcome.places, outcome.refused) == ({}, []), "nor is anything refused"


@pytest.mark.parametrize("place", ["runs.parquet", "release.json", "run 100%25/a.txt"])
def test_the_search_for_planted_secrets_finds_them(place: str, tmp_path: Path) -> None:
    secret = PLANTED.Secret("project", "Black%Swan", ("swan-7",))
    path = tmp_path / place
    path.parent.mkdir(exist_ok=True)
    for text, is_there in (("black%swan", True), ("of Swan-7", True), ("swan", False)):
        if path.suffix == ".parquet":
            pl.DataFrame({"model": [text]}).write_parquet(path)
        else:
            path.write_text(json.dumps([text]))
        assert (secret in PLANTED._found([secret], tmp_path)) == is_there


@pytest.mark.parametrize(("only_known", "most"), [(False, 0.05), (True, 0.02)])
def test_of_secrets_in_the_description_few_pass(only_known: bool, most: float) -> None:
    """By the words alone; the scan finds more of them."""
    passed = []
    for secret in PLANTED.corpus():
        stated = {"description": f"Training of resnet50 on four workers, with {secret.text}, in a lab."}
        try:
            request.refuse_unknown_words(stated, (), only_known)
        except LeakError:
            continue
        passed.append(secret)
    assert len(passed) <= most * len(PLANTED.corpus()), passed
