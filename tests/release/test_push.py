"""Push: what goes, into folders, and how it is tried again."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from publishing import run_push
from small_release import SMALL, content, make, seal
from tools import needs_package

import ddnn_traces
from ddnn_traces.errors import PushError, StorageError, UsageError
from ddnn_traces.messages import Messages
from ddnn_traces.release import push
from ddnn_traces.release.push import folder, upload_contents
from ddnn_traces.release.push.upload_contents import Retry, Transient, scrub


@pytest.fixture
def release(tmp_path: Path) -> Path:
    return make(tmp_path / "release")


# --- what goes


def test_last_files_make_it_whole(release: Path) -> None:
    items = [item.path for item in upload_contents.read(release).items]
    assert items[-3:] == ["release.json", "dataset.json", "SHA256SUMS"]
    assert sorted(items) == sorted(content(release))


def test_what_is_not_listed_stays(release: Path, tmp_path: Path) -> None:
    (release / "key").write_text("secret")
    (release / "runs" / ".part-0.parquet.swp").write_text("")
    ddnn_traces.push(release, str(tmp_path / "to"))
    assert not {"key", "runs/.part-0.parquet.swp"} & set(content(tmp_path / "to" / "1.0.0"))


def test_damaged_release_is_not_sent(release: Path, tmp_path: Path) -> None:
    path = release / "flows" / "run_id=one" / "part-0.parquet"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    with pytest.raises(PushError, match=r"flows/run_id=one/part-0\.parquet: not as the checksums"):
        ddnn_traces.push(release, str(tmp_path / "to"))
    assert not (tmp_path / "to").exists()


@pytest.mark.parametrize(
    "line",
    [
        f"{'0' * 64}  ../outside", f"{'0' * 64}  /etc/passwd", f"{'0' * 64}  a/../b", f"{'0' * 64}  a//b", "no sum at "
        "all",
        f"{'0' * 64}  a\\b", f"{'0' * 63}  short", f"{'0' * 64}  ./LICENSE",
    ],
)  # fmt: skip
def test_paths_that_lead_out_are_refused(release: Path, tmp_path: Path, line: str) -> None:
    (release / "SHA256SUMS").write_text(f"{line}\n")
    with pytest.raises(PushError, match="line 1 is not a checksum"):
        ddnn_traces.push(release, str(tmp_path / "to"))


def test_links_are_not_followed(release: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(SMALL["LICENSE"])
    (release / "LICENSE").unlink()
    (release / "LICENSE").symlink_to(tmp_path / "secret")
    with pytest.raises(PushError, match="LICENSE: a link"):
        ddnn_traces.push(release, str(tmp_path / "to"))


def test_linked_folder_is_not_followed(release: Path, tmp_path: Path) -> None:
    (release / "captures").rename(tmp_path / "elsewhere")
    (release / "captures").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PushError, match="a link"):
        ddnn_traces.push(release, str(tmp_path / "to"))


def test_missing_file(release: Path, tmp_path: Path) -> None:
    (release / "LICENSE").unlink()
    with pytest.raises(PushError, match="LICENSE: missing"):
        ddnn_traces.push(release, str(tmp_path / "to"))


@pytest.mark.parametrize("version", ["../../1.0.0", "1.0", "", "latest", "1.0.0/x"])
def test_versions_that_are_none(tmp_path: Path, version: str) -> None:
    with pytest.raises(PushError, match="is not semantic"):
        ddnn_traces.push(make(tmp_path / "release", version=version), str(tmp_path / "to"))


def test_what_is_no_release(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such release"):
        ddnn_traces.push(tmp_path / "none", "x")
    with pytest.raises(UsageError, match="no SHA256SUMS in it"):
        ddnn_traces.push(tmp_path, "x")


@pytest.mark.parametrize("encoded", [False, True])
def test_bag(release: Path, tmp_path: Path, encoded: bool) -> None:
    """A BagIt bag goes with its manifests, by their checksums."""
    bagit = needs_package("bagit")
    bagit.make_bag(str(release), checksums=["sha256"])
    if encoded:  # as RFC 8493 has it; bagit itself leaves percent as it is
        manifest = release / "manifest-sha256.txt"
        manifest.write_text(manifest.read_text().replace("%20", "%2520"))
        bagit.Bag(str(release)).save()
    outcome = ddnn_traces.push(release, str(tmp_path / "to"))
    assert content(tmp_path / "to" / "1.0.0") == content(release)
    assert outcome.sent == len(content(release))
    assert upload_contents.read(release).last.path == "tagmanifest-sha256.txt"
    (release / "bag-info.txt").write_text("changed")
    with pytest.raises(PushError, match=r"bag-info\.txt: not as the checksums"):
        ddnn_traces.push(release, str(tmp_path / "other"))


# --- into a folder


def test_folder_of_versions(release: Path, tmp_path: Path) -> None:
    to = tmp_path / "a" / "b"
    outcome = ddnn_traces.push(release, str(to))
    assert content(to) == {f"1.0.0/{path}": data for path, data in content(release).items()}
    assert (outcome.sent, outcome.there) == (len(SMALL) + 2, 0)
    again = ddnn_traces.push(release, str(to))
    assert (again.sent, again.there) == (0, len(SMALL) + 2)
    ddnn_traces.push(make(tmp_path / "next", SMALL | {"LICENSE": b"other"}, "1.1.0-rc.1"), str(to))
    assert sorted(path.name for path in to.iterdir()) == ["1.0.0", "1.1.0-rc.1"]


@pytest.mark.parametrize("change", ["other", "sealed", "more"])
def test_version_is_never_overwritten(release: Path, tmp_path: Path, change: str) -> None:
    to = tmp_path / "to"
    if change == "other":
        ddnn_traces.push(make(tmp_path / "other", SMALL | {"LICENSE": b"CC-BY-4.1\n"}), str(to))
    else:
        ddnn_traces.push(release, str(to))
    if change == "sealed":
        (to / "1.0.0" / "LICENSE").write_bytes(b"CC-BY-4.1\n")
        seal(to / "1.0.0")
    elif change == "more":
        (to / "1.0.0" / "stranger").touch()
    before = content(to)
    with pytest.raises(PushError, match=r"is there with another content \([12] files?: .*another `version`"):
        ddnn_traces.push(release, str(to))
    assert content(to) == before


@pytest.mark.parametrize("change", ["byte", "fewer", "list"])
def test_damaged_copy_is_no_other_version(release: Path, tmp_path: Path, change: str) -> None:
    to = tmp_path / "to"
    ddnn_traces.push(release, str(to))
    path = to / "1.0.0" / ("SHA256SUMS" if change == "list" else "LICENSE")
    if change == "fewer":
        path.unlink()
    else:
        path.write_bytes(b"X" + path.read_bytes()[1:])
    before = content(to)
    with pytest.raises(PushError, match=rf"1\.0\.0 there is damaged: {path.name} not as.*remove that copy"):
        ddnn_traces.push(release, str(to))
    assert content(to) == before


@pytest.mark.parametrize(
    "target",
    [
        "s3://AKIAX:SECRETPW99@buck/x", "s3://AKIAX:SECRET/PW99@buck", "hf://u:SECRETPW99@datasets/a/b",
        "ftp://SECRETPW99@h",
    ],
)  # fmt: skip
def test_secrets_in_a_target_are_not_printed(release: Path, tmp_path: Path, target: str) -> None:
    with pytest.raises(UsageError, match=r"\*\*\*@.* is not a target.*credentials do not belong in it") as refused:
        ddnn_traces.push(release, target)
    assert "PW99" not in str(refused.value)
    process = run_push(release, "--to", target, cwd=tmp_path)
    assert "PW99" not in "".join(process.communicate(timeout=60))
    assert process.returncode == 2
    assert "PW99" not in scrub("cannot reach https://u:PW99@host/x nor s3://PW99@host")


def test_cut_off_push_goes_on(release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy, copied = folder._copy, []

    def cut_off(item: upload_contents.Item, to: Path) -> None:
        if len(copied) == 4:
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_bytes(item.local.read_bytes()[:2])  # half written
            raise KeyboardInterrupt
        copied.append(item.path)
        copy(item, to)

    monkeypatch.setattr(folder, "_copy", cut_off)
    with pytest.raises(KeyboardInterrupt, match="the same command continues"):
        ddnn_traces.push(release, str(tmp_path / "to"))
    assert [path.name for path in (tmp_path / "to").iterdir()] == [".1.0.0.partial"]
    monkeypatch.setattr(folder, "_copy", copy)
    outcome = ddnn_traces.push(release, str(tmp_path / "to"))
    assert (outcome.sent, outcome.there) == (len(SMALL) + 2 - 4, 4)
    assert content(tmp_path / "to") == {f"1.0.0/{path}": data for path, data in content(release).items()}


def test_left_overs_of_another_content_go(release: Path, tmp_path: Path) -> None:
    partial = tmp_path / "to" / ".1.0.0.partial"
    partial.mkdir(parents=True)
    (partial / "of-another-run").touch()
    (partial / "LICENSE").symlink_to("/etc/passwd")
    ddnn_traces.push(release, str(tmp_path / "to"))
    assert content(tmp_path / "to" / "1.0.0") == content(release)


def test_no_room(release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 100}))
    with pytest.raises(StorageError, match="no space left"):
        ddnn_traces.push(release, str(tmp_path / "to"))
    assert not (tmp_path / "to" / "1.0.0").exists()


def test_folder_that_cannot_be_written(release: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PushError, match="correct that"):
        ddnn_traces.push(release, str(tmp_path / "file" / "to"))


# --- which target


@pytest.mark.parametrize(
    ("to", "message"),
    [
        ("ftp://host/x", "is not a target"), ("hf://OWNER/NAME", "is not a target"),
        ("hf://datasets/only", "is not a target"),
        ("s3://", "is not a target"), ("s3://bucket/a/../b", "are not names in a bucket"), ("", "is not a target"),
        ("release/sub", "in the release itself"), ("release", "in the release itself"), ("file", "a file"),
    ],
)  # fmt: skip
def test_targets_that_are_none(
    release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=message):
        ddnn_traces.push(release, to)


@pytest.mark.parametrize(
    ("to", "option"),
    [
        ("x", {"private": True}),
        ("s3://bucket", {"record": 5}),
        ("zenodo", {"private": True}),
        ("x", {"endpoint_url": "x"}),
    ],
)
def test_options_that_mean_nothing(release: Path, to: str, option: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=f"`{next(iter(option))}` means nothing to the target {to}"):
        ddnn_traces.push(release, to, **option)


@pytest.mark.parametrize(
    ("to", "address"),
    [
        ("s3://bucket/a//b/", "s3://bucket/a/b/1.0.0/LICENSE"),
        ("s3://bucket", "s3://bucket/1.0.0/LICENSE"),
        ("hf://datasets/ada/traces", "hf://datasets/ada/traces@v1.0.0/LICENSE"),
        ("zenodo-sandbox", "https://sandbox.zenodo.org/api/deposit/depositions/(new)/LICENSE"),
    ],
)
def test_dry_run(release: Path, to: str, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a network and without a token."""
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("used the network"))
    for name in ("HF_TOKEN", "ZENODO_TOKEN", "ZENODO_SANDBOX_TOKEN", "AWS_ACCESS_KEY_ID"):
        monkeypatch.delenv(name, raising=False)
    found = {parcel.name: parcel for parcel in push.parcels(release, to)}
    assert (found["LICENSE"].address, found["LICENSE"].bytes) == (address, 10)


# --- again


def test_pauses_grow_and_end() -> None:
    slept: list[float] = []

    def fails() -> None:
        raise Transient("503")

    with pytest.raises(PushError, match="503; tried 6 times; the same command continues"):
        Retry(most_s=5, sleep=slept.append).call(fails, Messages())
    assert slept == [1, 2, 4, 5, 5]


def test_server_says_how_long() -> None:
    slept: list[float] = []
    answers = iter([Transient("429", 7.5), Transient("429", 1e9), None])

    def work() -> str:
        if failure := next(answers):
            raise failure
        return "done"

    assert Retry(sleep=slept.append).call(work, Messages()) == "done"
    assert slept == [7.5, 60]


@pytest.mark.parametrize(
    ("text", "scrubbed"),
    [
        ("Authorization: Bearer abc.def", "Authorization: Bearer ***"),
        ("https://x/y?access_token=abc&b=1", "https://x/y?access_token=***&b=1"),
        ("https://x/y?X-Amz-Signature=abc&X-Amz-Date=2", "https://x/y?X-Amz-Signature=***&X-Amz-Date=***"),
        ("token hf_abcdefghijk is\nwrong", "token *** is wrong"),
        ("AKIAIOSFODNN7EXAMPLE", "***"),
        ("https://user:word@host/x", "https://***@host/x"),
        ("mine", "***"),
    ],
)
def test_secrets_are_not_printed(text: str, scrubbed: str) -> None:
    assert scrub(text, ["mine", None]) == scrubbed


# --- the command


def test_command(release: Path, tmp_path: Path) -> None:
    dry = run_push(release, "--to", "to", "--dry-run", cwd=tmp_path)
    out, err = dry.communicate(timeout=60)
    assert (dry.returncode, len(out.splitlines())) == (0, len(SMALL) + 2)
    assert err.startswith(f"would send {len(SMALL) + 2} files, ")
    assert not (tmp_path / "to").exists()
    first = run_push(release, "--to", "to", cwd=tmp_path)
    assert f"sent {len(SMALL) + 2} files" in first.communicate(timeout=60)[1]
    (tmp_path / "to" / "1.0.0" / "LICENSE").write_bytes(b"")
    seal(tmp_path / "to" / "1.0.0")
    other = run_push(release, "--to", "to", cwd=tmp_path)
    out, err = other.communicate(timeout=60)
    assert (other.returncode, out) == (1, "")
    assert "never overwritten" in err
    assert len(err.splitlines()) == 1


def test_ctrl_c_says_how_to_go_on(release: Path, tmp_path: Path) -> None:
    """While a large file is hashed, which begins after the line on the file that stays."""
    with (release / "flows" / "large").open("wb") as file:
        file.truncate(8 << 30)  # sparse
    (release / "SHA256SUMS").write_text(f"{(release / 'SHA256SUMS').read_text()}{'0' * 64}  flows/large\n")
    (release / "stays").touch()
    process = run_push(release, "--to", "to", cwd=tmp_path)
    assert process.stderr is not None
    assert process.stderr.readline().startswith("stays: ")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted; what is at to cannot be mistaken for the whole release; the same command continues" in err
    assert not (tmp_path / "to").exists()


def test_what_changes_while_it_is_sent(release: Path, tmp_path: Path) -> None:
    proven = upload_contents.read(release)
    (release / "LICENSE").write_bytes(b"CC-BY-9.9\n")
    with pytest.raises(PushError, match="LICENSE: changed while it was sent"):
        folder.Folder(tmp_path / "to").push(proven, Retry(), Messages())
    assert not (tmp_path / "to" / "1.0.0").exists()
    seal(release)
    ddnn_traces.push(release, str(tmp_path / "to"))
    assert content(tmp_path / "to" / "1.0.0") == content(release)
