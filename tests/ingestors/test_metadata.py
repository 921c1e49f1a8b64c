"""What is known of a run before its packets: run.toml, then runs.csv, then the folder's name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from ddnn_traces.errors import MetadataError
from ddnn_traces.ingestors.metadata import (
    HostEntry,
    RunMetadata,
    bad_rows,
    from_name,
    is_run_folder,
    nominal_size_mb,
    read_metadata,
)

NAME = "tensorflow-resnet50-sgd-64-grpc-normal-ring"
FROM_NAME = {
    "framework": "tensorflow",
    "model": "resnet50",
    "optimizer": "sgd",
    "batch_size": 64,
    "backend": "grpc",
    "topology": "ring",
    "delay_ms": 0.0,
    "loss_pct": 0.0,
}


def metadata(top: Path, name: str = "run", toml: str | None = None, table: str | None = None) -> RunMetadata:
    """Metadata of a run folder with this run.toml and this runs.csv next to it."""
    folder = top / name
    folder.mkdir(exist_ok=True)
    if toml is not None:
        (folder / "run.toml").write_text(toml)
    if table is not None:
        (top / "runs.csv").write_text(table)
    return read_metadata(folder)


def refused(top: Path, toml: str | None = None, table: str | None = None) -> str:
    with pytest.raises(MetadataError) as caught:
        metadata(top, toml=toml, table=table)
    return str(caught.value)


def bad(top: Path, table: str) -> str:
    """The one message about a row of this runs.csv, which is not used."""
    assert not metadata(top, table=table).fields
    (message,) = bad_rows(top)
    return message


def test_many_wrong_rows_are_counted(tmp_path: Path) -> None:
    assert metadata(tmp_path, table="run_id,model\nrun,mlp1\n" + "run,x\n" * 5000).fields["model"] == "mlp1"
    messages = bad_rows(tmp_path)
    assert len(messages) == 21
    assert "4,980 more rows" in messages[-1]


# --- the folder's name


def test_published_scheme() -> None:
    assert from_name(NAME) == FROM_NAME


@pytest.mark.parametrize(
    ("condition", "fields"),
    [
        ("normal", {"delay_ms": 0.0, "loss_pct": 0.0}),
        ("loss_0.01", {"loss_pct": 0.01}),
        ("loss_1", {"loss_pct": 1.0}),
        ("0.05", {"loss_pct": 0.05}),  # experiment.py of tum-lkn/dml-network-traffic-analysis
        ("0ms", {"delay_ms": 0.0}),
        ("2.5ms", {"delay_ms": 2.5}),
        ("100mbit", {"bandwidth_mbit": 100.0}),
        ("2.5gbit", {"bandwidth_mbit": 2500.0}),
        ("100Mbit", {"bandwidth_mbit": 100.0}),
    ],
)
def test_conditions(condition: str, fields: dict[str, float]) -> None:
    named = from_name(f"horovod-densenet201-sgd-32-mpi-{condition}-tree")
    assert {key: value for key, value in named.items() if key.endswith(("_ms", "_pct", "_mbit"))} == fields


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("horovod-resnet50-sgd-64-mpi-nccl-normal-ring", {"backend": "mpi-nccl", "topology": "ring"}),
        ("torch-mlp1-sgd-32-gloo-0ms-ring-tso", {"variant": "tso", "topology": "ring"}),
        ("torch-mlp1-sgd-32-gloo-0ms-ring-both-2", {"variant": "both-2"}),
        ("tf-inception-v3-adam-128-grpc-normal-ps", {"model": "inception-v3", "optimizer": "adam", "batch_size": 128}),
        ("tf-resnet-50-adam-128-grpc-normal-ps", {"model": "resnet-50", "batch_size": 128}),
    ],
)
def test_parts_with_hyphens(name: str, fields: dict[str, Any]) -> None:
    assert fields.items() <= from_name(name).items()


@pytest.mark.parametrize(
    "name",
    [
        "run", "my-run-3", "a-b-c-d-e-f-g", "tf-resnet50-sgd-64-grpc", "tf-resnet50-sgd-64-grpc-normal",
        "tf-resnet50-sgd-many-grpc-normal-ring", "tf-resnet50-sgd-64-grpc-sometimes-ring",
        "tf-resnet50-sgd-64-grpc-1.2.3ms-ring", "tf-resnet50-sgd-64-grpc-.ms-ring", "tf-resnet50-sgd-²-grpc-0ms-ring",
        "tf-resnet50-sgd-64-grpc-loss_-ring", "tf-m-sgd-9999999999999999999999-grpc-0ms-ring", "", "-------",
    ],
)  # fmt: skip
def test_other_names_tell_nothing(name: str) -> None:
    assert from_name(name) == {}


# --- which source wins


def test_nothing_is_known(tmp_path: Path) -> None:
    assert metadata(tmp_path) == RunMetadata()
    assert read_metadata(None) == RunMetadata()


def test_order_holds_per_field(tmp_path: Path) -> None:
    found = metadata(
        tmp_path,
        NAME,
        toml='model = "from toml"\nworkers = 4',
        table=f"run_id,model,backend,epochs,optimizer\n{NAME},from csv,from csv,3,\nother,x,y,1,z\n",
    )
    expected = FROM_NAME | {"model": "from toml", "backend": "from csv", "epochs": 3, "workers": 4}
    assert found.fields == expected  # an empty cell is no value: the optimizer is the name's


def test_every_column_can_be_given(tmp_path: Path) -> None:
    fields = {"model_params": 5, "model_bytes": 20, "model_size_mb": 2.5, "bandwidth_mbit": 10.0, "variant": "x"}
    lines = [f"{key} = {value!r}" for key, value in fields.items()]
    assert metadata(tmp_path, toml="\n".join(lines)).fields == fields
    row = f"run_id,{','.join(fields)}\ntable,{','.join(map(str, fields.values()))}\n"
    assert metadata(tmp_path, "table", table=row).fields == fields


def test_csv_of_a_spreadsheet(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_bytes(b"\xef\xbb\xbfrun_id,model\r\nrun,mlp1\r\n")
    assert metadata(tmp_path).fields == {"model": "mlp1"}


def test_whole_number_is_good_for_a_float(tmp_path: Path) -> None:
    (value,) = metadata(tmp_path, toml="delay_ms = 20").fields.values()
    assert value == 20.0
    assert type(value) is float


def test_origin_is_free_text(tmp_path: Path) -> None:
    assert metadata(tmp_path, toml="[origin]\nanything = [1, 2]\n") == RunMetadata()


@pytest.mark.parametrize(
    ("word", "topology"),
    [
        ("ps", "parameter_server"), ("PS", "parameter_server"), ("gossip", "pair_averaging"), ("ring", "ring"),
        ("bts", "binary_tree_star"), ("recdoubling", "recursive_doubling"), ("binary_tree", "tree"),
        ("moebius", "moebius"), ("Moebius", "Moebius"), ("BINARY_TREE_STAR", "binary_tree_star"), ("CLIQUE", "clique"),
        ("STAR", "star"), ("TREE", "tree"),
    ],
)  # fmt: skip
def test_topology_words(tmp_path: Path, word: str, topology: str) -> None:
    assert metadata(tmp_path, toml=f'topology = "{word}"').fields == {"topology": topology}
    assert metadata(tmp_path, f"tf-m-sgd-1-grpc-0ms-{word}").fields["topology"] == topology


@pytest.mark.parametrize(
    ("model", "size"),
    [
        # zerwas section IV.B, farhat figure 1
        ("MobileNetV2", 14.0), ("mobilenet_v2", 14.0), ("DenseNet201", 80.0), ("ResNet50", 97.0), ("resnet-101", 171.0),
        ("VGG19", 549.0), ("Inception-v3", 92.0), ("densenet121", 33.0), ("mobilenet", 16.0), ("mlp1", None),
        (None, None),
    ],
)  # fmt: skip
def test_nominal_sizes(model: str | None, size: float | None) -> None:
    assert nominal_size_mb(model) == size


def test_nominal_size_is_filled_in(tmp_path: Path) -> None:
    assert metadata(tmp_path, toml='model = "ResNet50"').fields["model_size_mb"] == 97.0
    assert metadata(tmp_path, toml='model = "ResNet50"\nmodel_size_mb = 98').fields["model_size_mb"] == 98.0


# --- hosts


def test_hosts(tmp_path: Path) -> None:
    found = metadata(
        tmp_path,
        toml="""
        [[hosts]]
        ip = "10.0.0.2"
        label = "worker-1"
        role = "worker"
        rank = 0
        ring_position = 1
        [[hosts]]
        ip = "FD00:0::2"
        """,
    )
    assert found.hosts == (HostEntry("10.0.0.2", "worker-1", "worker", 0, 1), HostEntry("fd00::2"))


@pytest.mark.parametrize(
    ("entry", "named"),
    [
        ('label = "x"', "ip"), ('ip = "10.0.0.1"\nname = "x"', "name"), ('ip = "10.0.0.1"\nrole = "boss"', "boss"),
        ('ip = "10.0.0.1"\nrank = "one"', "rank = 'one'"), ('ip = "10.0.0.1"\nring_position = true', "ring_position"),
        ('ip = "10.0.0.1"\nlabel = 1', "label = 1"), ("ip = 5", "ip = 5"), ('ip = "worker-1"', "'worker-1'"),
        ('ip = "10.0.0.1"\nrank = 99999999999999999999', "rank"),
    ],
)  # fmt: skip
def test_wrong_host(tmp_path: Path, entry: str, named: str) -> None:
    message = refused(tmp_path, toml=f"[[hosts]]\n{entry}\n")
    assert message.startswith(f"{tmp_path / 'run' / 'run.toml'}: ")
    assert named in message


@pytest.mark.parametrize("hosts", ["5", '"10.0.0.1"', '["10.0.0.1"]'])
def test_hosts_are_a_table(tmp_path: Path, hosts: str) -> None:
    assert "is not a list of [[hosts]] tables" in refused(tmp_path, toml=f"hosts = {hosts}")


# --- what is wrong is named


@pytest.mark.parametrize(
    ("toml", "named"),
    [
        ("batch_size = 'many'", "batch_size = 'many'"), ("batch_size = true", "batch_size = True"),
        ("batch_size = 3.0", "batch_size = 3.0"), ("model = 50", "model = 50"), ("loss_pct = '1'", "loss_pct = '1'"),
        ("model_bytes = 9223372036854775808", "model_bytes"), ("modle = 'x'", "unknown key 'modle'"),
        ("run_id = 'x'", "unknown key 'run_id'"), ("[model]\nname = 'x'", "model"), ("topology = 3", "topology = 3"),
        ("model = \nworkers = 4", "line 1"), ("model = 'a'\nmodel = 'b'\n", "line 2"),
    ],
)  # fmt: skip
def test_wrong_toml(tmp_path: Path, toml: str, named: str) -> None:
    message = refused(tmp_path, toml=toml)
    assert message.startswith(f"{tmp_path / 'run' / 'run.toml'}: ")
    assert named in message


def test_all_mistakes_of_a_run_toml_are_named(tmp_path: Path) -> None:
    toml = "batch_size = 'many'\nmodle = 'x'\nworkers = 4\n[[hosts]]\nip = 'x'\n[[hosts]]\nname = 'y'\n"
    message = refused(tmp_path, toml=toml)
    assert message.count(str(tmp_path / "run" / "run.toml")) == 1
    for named in ("batch_size = 'many'", "unknown key 'modle'", "ip = 'x'", "'name'"):
        assert named in message
    many = refused(tmp_path, toml="".join(f"x{number} = 1\n" for number in range(30)))
    assert "unknown key 'x19'" in many and "x20" not in many and many.endswith("; and 10 more")


OUT_OF_RANGE = [
    ("model_bytes", "-5", "above 0"), ("model_bytes", "0", "above 0"), ("model_params", "-1", "above 0"),
    ("model_size_mb", "-0.5", "above 0"), ("model_size_mb", "nan", "above 0"), ("batch_size", "0", "above 0"),
    ("workers", "0", "above 0"), ("epochs", "-1", "above 0"), ("bandwidth_mbit", "0.0", "above 0"),
    ("bandwidth_mbit", "-10.0", "above 0"), ("bandwidth_mbit", "inf", "above 0"), ("delay_ms", "-3.0", "0 or more"),
    ("delay_ms", "inf", "0 or more"), ("loss_pct", "nan", "0 to 100"), ("loss_pct", "-0.1", "0 to 100"),
    ("loss_pct", "100.1", "0 to 100"), ("clock_drift_ppm", "nan", "a finite number"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value", "allowed"), OUT_OF_RANGE)
def test_a_number_that_no_run_can_have(tmp_path: Path, name: str, value: str, allowed: str) -> None:
    said = f": {name} = {value}; it is {allowed}"
    assert refused(tmp_path, toml=f"{name} = {value}").startswith(f"{tmp_path / 'run' / 'run.toml'}{said}")
    (tmp_path / "run" / "run.toml").unlink()
    assert bad(tmp_path, f"run_id,{name}\nrun,{value}\n").startswith(
        f"{tmp_path / 'runs.csv'}: line 2: run 'run'{said}"
    )


def test_the_ends_of_what_is_allowed(tmp_path: Path) -> None:
    least = {"model_bytes": 1, "batch_size": 1, "workers": 1, "epochs": 1, "delay_ms": 0.0, "loss_pct": 0.0}
    for fields in (least, {"loss_pct": 100.0}, {"clock_drift_ppm": -3.0}):
        assert metadata(tmp_path, toml="\n".join(f"{k} = {v!r}" for k, v in fields.items())).fields == fields


def test_a_folder_s_name_with_a_number_that_no_run_can_have(tmp_path: Path) -> None:
    name = "tf-m-sgd-0-grpc-loss_200-ring"
    with pytest.raises(MetadataError, match=r"ring: by the folder's name batch_size = 0; it is above 0"):
        metadata(tmp_path, name)
    assert metadata(tmp_path, name, toml="batch_size = 1\nloss_pct = 2").fields["loss_pct"] == 2.0


@pytest.mark.parametrize("name", ["rank", "ring_position"])
def test_a_host_s_place_is_not_negative(tmp_path: Path, name: str) -> None:
    assert f"in [[hosts]] {name} = -1; it is 0 or more" in refused(
        tmp_path, toml=f'[[hosts]]\nip = "10.0.0.1"\n{name} = -1\n'
    )


def test_toml_that_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.toml").write_bytes(b'model = "\xff"')
    assert "run.toml: not text in UTF-8 (byte 9); save it as UTF-8" in refused(tmp_path)


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ("batch_size = " + "9" * 5000, "a number has too many digits"),
        ("batch_size = 0x" + "f" * 5000, "batch_size = a value of type int too long to be shown"),
        ("batch_size = " + "[" * 3000 + "]" * 3000, "nested too deeply"),
        ("batch_size = " + "9" * 400, "is beyond 64 bits"),
        ("batch_size = " + "[" * 300 + "]" * 300, "is not of type int"), ("x" * 5000 + " = 1", "unknown key 'xxx"),
        ("#" + "x" * (1 << 20), "1,048,577 bytes; of such a file at most 1,048,576 are read"),
    ],
)  # fmt: skip
def test_toml_that_no_reader_should_meet(tmp_path: Path, toml: str, said: str) -> None:
    message = refused(tmp_path, toml=toml)
    assert message.startswith(f"{tmp_path / 'run' / 'run.toml'}: ")
    assert said in message
    assert len(message) < len(str(tmp_path)) + 600


def test_toml_with_a_byte_order_mark(tmp_path: Path) -> None:
    assert metadata(tmp_path, toml="\ufeffbatch_size = 8").fields == {"batch_size": 8}


@pytest.mark.parametrize("name", ["run/run.toml", "runs.csv"])
@pytest.mark.parametrize("kind", ["a pipe", "a device", "a folder", "No such file"])
def test_a_name_that_is_no_file(tmp_path: Path, name: str, kind: str) -> None:
    (tmp_path / "run").mkdir()
    path = tmp_path / name
    if kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero" if kind == "a device" else "nowhere")
    message = refused(tmp_path)
    assert message.startswith(f"{path}: ")
    assert kind in message


def test_text_of_metadata_can_be_shown_everywhere(tmp_path: Path) -> None:
    toml = 'model = "a\\u001bb"\n[[hosts]]\nip = "10.0.0.1"\nlabel = "c\\nd"'
    found = metadata(tmp_path, os.fsdecode(b"tf\xff-m-sgd-8-grpc-normal-ring"), toml)
    assert (found.fields["model"], found.fields["framework"]) == ("a%1Bb", "tf%FF")
    assert found.hosts == (HostEntry("10.0.0.1", "c%0Ad"),)


@pytest.mark.parametrize(
    ("table", "named"),
    [
        ("run_id,modle\nrun,x\n", "unknown key 'modle'"), ("name,model\nrun,x\n", "no column run_id"),
        ("", "no column run_id"), ("run_id,model,model\nrun,x,y\n", "2 columns are named model"),
    ],
)  # fmt: skip
def test_a_header_that_is_wrong_is_an_error(tmp_path: Path, table: str, named: str) -> None:
    message = refused(tmp_path, table=table)
    assert message.startswith(f"{tmp_path / 'runs.csv'}: ")
    assert named in message


@pytest.mark.parametrize(
    ("row", "named"),
    [
        ("run,many", "run 'run': batch_size = 'many' is not of type int"), ("run,1.5", "batch_size = '1.5'"),
        ("run,99999999999999999999", "batch_size"), ("run,0", "batch_size = 0; it is above 0"),
        ("run,5,x", "3 cells, but 2 columns; put text with commas in quotes"), (",5", "no run_id"),
        ('run,"' + 200_000 * "x" + '"', "a cell is too long"), ('run,"5', "a quotation mark is not closed"),
        ("run,\udcff", "not text in UTF-8"), ("other,5", "run_id = 'other' has a row above"),
    ],
)  # fmt: skip
def test_one_bad_row_leaves_the_others(tmp_path: Path, row: str, named: str) -> None:
    """The next line is read too, also after a quotation mark that is not closed."""
    table = f"run_id,batch_size\nother,7\n{row}\nlast,9,\n,,,\n\n".encode(errors="surrogateescape")
    (tmp_path / "runs.csv").write_bytes(table)
    found = {name: metadata(tmp_path, name).fields.get("batch_size") for name in ("run", "other", "last")}
    assert found == {"run": None, "other": 7, "last": 9}
    (said,) = bad_rows(tmp_path)
    assert said.startswith(f"{tmp_path / 'runs.csv'}: line 3: ")
    assert named in said
    assert said.endswith("; the row is not used")


def test_csv_that_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_bytes("run_id,model\nrun,x\n".encode("utf-16"))
    assert "not CSV in UTF-8" in refused(tmp_path)


# --- which folders are runs'


def test_run_folders(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text("run_id,model\nlisted,x\n")
    for name in ("declared", "listed", NAME, "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "declared" / "run.toml").write_text("")
    assert [is_run_folder(tmp_path / name) for name in ("declared", "listed", NAME, "other")] == [
        True,
        True,
        True,
        False,
    ]


def test_a_run_says_where_it_is_from(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text('source = "testbed"')
    assert read_metadata(tmp_path).fields["source"] == "testbed"
    (tmp_path / "run.toml").write_text('source = "dream"')
    with pytest.raises(MetadataError, match="source = 'dream' of the run; it is one of capture, testbed, simulation"):
        read_metadata(tmp_path)


def test_a_rejected_run_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text('rejected = "worker-2 ended with exit code 1"\n')
    with pytest.raises(MetadataError, match=r"rejected = 'worker-2 ended with exit code 1'.* without this key"):
        read_metadata(tmp_path)
