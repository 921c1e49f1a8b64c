"""Into a dataset repository of the Hugging Face Hub: one commit a version on main, and the tag vVERSION on it.

The client library sends only what the Hub does not hold by its SHA-256, so that an upload that was cut off goes on;
nothing is in the repository before the commit, and nobody finds a version before its tag.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ddnn_traces.errors import PushError
from ddnn_traces.extras import load
from ddnn_traces.release.push.contents import Contents, Item, damaged_copy, is_damaged_copy
from ddnn_traces.release.push.outcome import Outcome, Parcel
from ddnn_traces.release.push.retry import TRANSIENT, Retry, Transient, seconds
from ddnn_traces.release.push.secrets import scrub
from ddnn_traces.store import layout
from ddnn_traces.talk import Talk

_Result = TypeVar("_Result")

#: Made by the Hub with a repository.
_OF_THE_HUB = {".gitattributes"}
_CREDENTIALS = (
    "give a token that may write: 'hf auth login', or HF_TOKEN (made at the Hub under Settings, Access Tokens)"
)


@dataclass(frozen=True)
class Hub:
    """A dataset repository, OWNER/NAME. endpoint_url: None for what HF_ENDPOINT says, else huggingface.co."""

    name: str
    endpoint_url: str | None = None
    private: bool = False

    def parcels(self, contents: Contents) -> list[Parcel]:
        """What goes where."""
        place = f"hf://datasets/{self.name}@v{contents.version}"
        return [Parcel(item.path, item.bytes, f"{place}/{item.path}") for item in contents.items]

    def push(self, contents: Contents, retry: Retry, talk: Talk) -> Outcome:
        """One commit and a tag. Raises PushError, MissingExtra."""
        repository = _Repository(self, retry, talk)
        tag = f"v{contents.version}"
        place = f"hf://datasets/{self.name}@{tag}"
        tags = repository.tags()
        if tags is None:
            repository.create(self.private)
        elif tag in tags:
            other = _differing(contents, repository.tree(tag))
            if other and is_damaged_copy(contents, other):
                raise damaged_copy(place, contents, other)
            if other:
                raise PushError(
                    f"{place}: version {contents.version} is there with another content ({', '.join(other[:3])} "
                    "differ), and a version is never overwritten; publish yours under another --version, or choose "
                    "another repository"
                )
            return Outcome(place, 0, 0, len(contents.items))
        before = repository.tree("main")
        gone = self._gone(contents, before, repository)
        missing = [item for item in contents.items if not _is_there(item, before.get(item.path))]
        if missing or gone:
            repository.commit(missing, gone, f"Version {contents.version}")
        after, revision = repository.tree("main"), repository.head()
        if other := _differing(contents, after):
            raise PushError(
                f"{place}: what has arrived is not what was sent ({', '.join(other[:3])} differ); nothing was tagged; "
                "run the same command again"
            )
        repository.tag(tag, revision)
        there = len(contents.items) - len(missing)
        return Outcome(place, len(missing), sum(item.bytes for item in missing), there, (f"commit {revision}",))

    def _gone(self, contents: Contents, before: dict[str, Any], repository: _Repository) -> list[str]:
        """Files of the version before that this one has no more. Raises PushError for files of nobody's release."""
        own = {item.path for item in contents.items} | _OF_THE_HUB
        others = before.keys() - own
        released = repository.listed_on_main() if others else set()
        if strange := sorted(others - released):
            raise PushError(
                f"hf://datasets/{self.name}: holds files that are of no release ({', '.join(strange[:3])}), which "
                "readers would take for this one's; choose another repository, or remove them there"
            )
        return sorted(others)


class _Repository:
    """The repository as this program asks for it. Raises PushError for what the Hub refuses."""

    def __init__(self, target: Hub, retry: Retry, talk: Talk) -> None:
        self._target, self._retry, self._talk = target, retry, talk
        self._library = load("huggingface_hub")
        load("huggingface_hub.utils").disable_progress_bars()
        self._token = self._library.get_token()
        if not self._token:
            raise PushError(f"hf://datasets/{target.name}: no token for the Hub was found; {_CREDENTIALS}")
        self._api = self._library.HfApi(endpoint=target.endpoint_url, token=self._token)
        self._id = {"repo_id": target.name, "repo_type": "dataset"}

    def tags(self) -> set[str] | None:
        """Names of the tags; None where there is no such repository."""
        missing = load("huggingface_hub.errors").RepositoryNotFoundError

        def ask() -> set[str] | None:
            try:
                return {tag.name for tag in self._api.list_repo_refs(**self._id).tags}
            except missing as error:
                if _state(error) == 404:
                    return None
                raise

        return self._call(ask)

    def create(self, private: bool) -> None:
        """Make the repository."""
        self._call(lambda: self._api.create_repo(**self._id, private=private, exist_ok=True))

    def tree(self, revision: str) -> dict[str, Any]:
        """Files of a revision by path; none where it has no commit."""
        missing = load("huggingface_hub.errors").RevisionNotFoundError
        file = load("huggingface_hub.hf_api").RepoFile

        def ask() -> dict[str, Any]:
            try:
                found = list(self._api.list_repo_tree(**self._id, revision=revision, recursive=True))
            except missing:
                return {}
            return {entry.path: entry for entry in found if isinstance(entry, file)}

        return self._call(ask)

    def head(self) -> str:
        """Commit that main is at."""
        return str(self._call(lambda: self._api.repo_info(**self._id, revision="main")).sha)

    def listed_on_main(self) -> set[str]:
        """Paths in the checksums of the version that main holds."""
        missing = load("huggingface_hub.errors").EntryNotFoundError

        def ask() -> set[str]:
            with tempfile.TemporaryDirectory() as folder:
                try:
                    name, where = layout.CHECKSUMS, {"revision": "main", "local_dir": folder}
                    path = Path(self._api.hf_hub_download(**self._id, filename=name, **where))
                except missing:
                    return set()
                lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
            return {line[66:] for line in lines} | {layout.CHECKSUMS}

        return self._call(ask)

    def commit(self, items: list[Item], gone: list[str], message: str) -> None:
        """Send files, and put them and what goes into one commit on main."""

        def work() -> None:
            operations = [self._library.CommitOperationAdd(item.path, str(item.local)) for item in items]
            operations += [self._library.CommitOperationDelete(path) for path in gone]
            self._api.create_commit(**self._id, operations=operations, commit_message=message, revision="main")

        self._call(work)

    def tag(self, tag: str, revision: str) -> None:
        """Give a commit its name for good."""
        self._call(lambda: self._api.create_tag(**self._id, tag=tag, revision=revision))

    def _call(self, work: Callable[[], _Result]) -> _Result:
        def attempt() -> _Result:
            try:
                return work()
            except Exception as error:
                raise self._explained(error) from None  # its own text may hold a token

        return self._retry.call(attempt, self._talk)

    def _explained(self, error: Exception) -> Exception:
        where, error = f"hf://datasets/{self._target.name}", _root(error)
        state = _state(error)
        reason = scrub(error, (self._token,)) or type(error).__name__
        if state in (401, 403):
            return PushError(f"{where}: the Hub refuses ({reason}); {_CREDENTIALS}")
        if state in TRANSIENT:
            headers = getattr(getattr(error, "response", None), "headers", {})
            return Transient(
                f"{where}: the Hub does not answer as it should ({reason})", seconds(headers.get("retry-after"))
            )
        if state is None and _is_of_the_network(error):
            return Transient(f"{where}: the Hub cannot be reached ({reason})")
        if state == 413 or "storage" in reason.lower():
            return PushError(f"{where}: the Hub has no room for it ({reason}); free some, or choose another owner")
        if _is_no_hub(error):
            return PushError(
                f"{where}: what answers there is no Hub" + (f" (HTTP {state})" if state else "") + "; check "
                "--endpoint-url or HF_ENDPOINT"
            )
        return PushError(f"{where}: {reason}; mend that and run the same command again")


def _is_no_hub(error: Exception) -> bool:
    """Whether an answer is a page or XML, where a Hub answers in JSON."""
    headers = getattr(getattr(error, "response", None), "headers", {})
    return isinstance(error, json.JSONDecodeError) or any(
        kind in headers.get("content-type", "") for kind in ("xml", "html")
    )


def _is_of_the_network(error: Exception) -> bool:
    """Whether an error is that of a connection. httpx2 has the place of httpx in the client's later versions."""
    if isinstance(error, load("huggingface_hub.errors").OfflineModeIsEnabled):
        return False
    return isinstance(error, ConnectionError | TimeoutError) or type(error).__module__.startswith(("httpx", "httpcore"))


def _root(error: BaseException) -> Exception:
    """What the client wraps where it sends files in threads: the answer or the failure of the network."""
    while _state(error) is None and isinstance(error.__cause__, Exception) and type(error) is RuntimeError:
        error = error.__cause__
    return error if isinstance(error, Exception) else RuntimeError(str(error))


def _state(error: BaseException) -> int | None:
    state = getattr(getattr(error, "response", None), "status_code", None)
    return state if isinstance(state, int) else None


def _differing(contents: Contents, tree: dict[str, Any]) -> list[str]:
    """Paths that are not the same in the release and in the repository."""
    own = {item.path: item for item in contents.items}
    strange = tree.keys() - own.keys() - _OF_THE_HUB
    return sorted(strange | {path for path, item in own.items() if not _is_there(item, tree.get(path))})


def _is_there(item: Item, entry: Any) -> bool:
    """Whether the Hub's file is the item: by its SHA-256 in large file storage, else by git's hash of its content."""
    if entry is None or entry.size != item.bytes:
        return False
    return bool(entry.lfs.sha256 == item.sha256 if entry.lfs else entry.blob_id == _git_hash(item))


def _git_hash(item: Item) -> str:
    digest = hashlib.sha1(f"blob {item.bytes}\0".encode(), usedforsecurity=False)
    digest.update(item.local.read_bytes())  # the Hub keeps large files otherwise
    return digest.hexdigest()
