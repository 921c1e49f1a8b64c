"""Upload into a dataset repository of the Hugging Face Hub: one commit per version on main, with the tag vVERSION.

The client library sends only files whose SHA-256 the Hub does not hold, so that an interrupted upload continues.
Nothing is in the repository before the commit, and a version cannot be found before its tag.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ddnn_traces.errors import PushError, needs_extra
from ddnn_traces.messages import Messages
from ddnn_traces.release.push.upload_contents import (
    TRANSIENT,
    Contents,
    Item,
    Outcome,
    Parcel,
    Retry,
    Transient,
    other_content,
    parcels_below,
    refuse_damaged,
    scrub,
    seconds,
)
from ddnn_traces.store import layout

_Result = TypeVar("_Result")

#: Made by the Hub with a repository.
_OF_THE_HUB = {".gitattributes"}
_CREDENTIALS = (
    "give a token that may write: 'hf auth login', or HF_TOKEN (made at the Hub under Settings, Access Tokens)"
)


@dataclass(frozen=True)
class Hub:
    """A dataset repository, OWNER/NAME. endpoint_url: None for the value of HF_ENDPOINT, else huggingface.co."""

    name: str
    endpoint_url: str | None = None
    private: bool = False

    def parcels(self, contents: Contents) -> list[Parcel]:
        return parcels_below(f"hf://datasets/{self.name}@v{contents.version}", contents)

    def push(self, contents: Contents, retry: Retry, messages: Messages) -> Outcome:
        """One commit and a tag. Raises PushError, MissingExtra."""
        repository = _Repository(self, retry, messages)
        tag = f"v{contents.version}"
        place = f"hf://datasets/{self.name}@{tag}"
        tags = repository.tags()
        if tags is None:
            repository.create(self.private)
        elif tag in tags:
            other = _differing(contents, repository.tree(tag))
            refuse_damaged(place, contents, other)
            if other:
                raise other_content(place, contents, other, ", or choose another repository")
            return Outcome.of(place, contents.items)
        before = repository.tree("main")
        gone = self._gone(contents, before, repository)
        missing = [item for item in contents.items if not _is_there(item, before.get(item.path))]
        if missing or gone:
            repository.commit(missing, gone, f"Version {contents.version}")
        after, revision = repository.tree("main"), repository.head()
        if other := _differing(contents, after):
            raise PushError(
                f"{place}: the files there differ from those that were sent ({', '.join(other[:3])}); nothing was "
                "tagged; run the same command again"
            )
        repository.tag(tag, revision)
        return Outcome.of(place, contents.items, missing, (f"commit {revision}",))

    def _gone(self, contents: Contents, before: dict[str, Any], repository: _Repository) -> list[str]:
        """Files of the version before that this one lacks. Raises PushError for files that are not of a release."""
        own = {item.path for item in contents.items} | _OF_THE_HUB
        others = before.keys() - own
        released = repository.listed_on_main() if others else set()
        if strange := sorted(others - released):
            raise PushError(
                f"hf://datasets/{self.name}: holds files that are not of a release ({', '.join(strange[:3])}), "
                "which readers would take for this one's; choose another repository, or remove them there"
            )
        return sorted(others)


class _Repository:
    """The requests to the repository. Raises PushError for what the Hub refuses."""

    def __init__(self, target: Hub, retry: Retry, messages: Messages) -> None:
        self._target, self._retry, self._messages = target, retry, messages
        with needs_extra():
            import huggingface_hub
            from huggingface_hub.utils.tqdm import disable_progress_bars

        disable_progress_bars()
        self._library = huggingface_hub
        self._token = huggingface_hub.get_token()
        if not self._token:
            raise PushError(f"hf://datasets/{target.name}: no token for the Hub was found; {_CREDENTIALS}")
        self._api = self._library.HfApi(endpoint=target.endpoint_url, token=self._token)
        self._id: dict[str, Any] = {"repo_id": target.name, "repo_type": "dataset"}

    def tags(self) -> set[str] | None:
        """Names of the tags; None where the repository does not exist."""
        from huggingface_hub.errors import RepositoryNotFoundError

        def request() -> set[str] | None:
            try:
                return {tag.name for tag in self._api.list_repo_refs(**self._id).tags}
            except RepositoryNotFoundError as error:
                if _state(error) == 404:
                    return None
                raise

        return self._call(request)

    def create(self, private: bool) -> None:
        self._call(lambda: self._api.create_repo(**self._id, private=private, exist_ok=True))

    def tree(self, revision: str) -> dict[str, Any]:
        """Files of a revision by path; empty where it has no commit."""
        from huggingface_hub.errors import RevisionNotFoundError
        from huggingface_hub.hf_api import RepoFile

        def request() -> dict[str, Any]:
            try:
                found = list(self._api.list_repo_tree(**self._id, revision=revision, recursive=True))
            except RevisionNotFoundError:
                return {}
            return {entry.path: entry for entry in found if isinstance(entry, RepoFile)}

        return self._call(request)

    def head(self) -> str:
        return str(self._call(lambda: self._api.repo_info(**self._id, revision="main")).sha)

    def listed_on_main(self) -> set[str]:
        """Paths in the checksums of the version on main."""
        from huggingface_hub.errors import EntryNotFoundError

        def request() -> set[str]:
            with tempfile.TemporaryDirectory() as folder:
                try:
                    where: dict[str, Any] = {"filename": layout.CHECKSUMS, "revision": "main", "local_dir": folder}
                    path = Path(self._api.hf_hub_download(**self._id, **where))
                except EntryNotFoundError:
                    return set()
                lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
            return {line[66:] for line in lines} | {layout.CHECKSUMS}

        return self._call(request)

    def commit(self, items: list[Item], gone: list[str], message: str) -> None:
        """Send files, and add them and remove `gone` in one commit on main."""

        def work() -> None:
            operations: list[Any] = [self._library.CommitOperationAdd(item.path, str(item.local)) for item in items]
            operations += [self._library.CommitOperationDelete(path) for path in gone]
            self._api.create_commit(**self._id, operations=operations, commit_message=message, revision="main")

        self._call(work)

    def tag(self, tag: str, revision: str) -> None:
        self._call(lambda: self._api.create_tag(**self._id, tag=tag, revision=revision))

    def _call(self, work: Callable[[], _Result]) -> _Result:
        return self._retry.call(work, self._messages, self._explained)

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
            return PushError(f"{where}: the Hub has no space for it ({reason}); free some, or choose another owner")
        if _is_not_a_hub(error):
            return PushError(
                f"{where}: the server there is not a Hub" + (f" (HTTP {state})" if state else "") + "; check "
                "--endpoint-url or HF_ENDPOINT"
            )
        return PushError(f"{where}: {reason}; correct that and run the same command again")


def _is_not_a_hub(error: Exception) -> bool:
    """Whether an answer is a page or XML, where a Hub answers in JSON."""
    headers = getattr(getattr(error, "response", None), "headers", {})
    return isinstance(error, json.JSONDecodeError) or any(
        kind in headers.get("content-type", "") for kind in ("xml", "html")
    )


def _is_of_the_network(error: Exception) -> bool:
    """Whether an error is that of a connection. Later versions of the client use httpx2 in place of httpx."""
    from huggingface_hub.errors import OfflineModeIsEnabled

    if isinstance(error, OfflineModeIsEnabled):
        return False
    return isinstance(error, ConnectionError | TimeoutError) or type(error).__module__.startswith(("httpx", "httpcore"))


def _root(error: BaseException) -> Exception:
    """The cause of an error that the client wraps where it sends files in threads: an answer, or the network."""
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
    content = f"blob {item.bytes}\0".encode() + item.local.read_bytes()  # large files have a SHA-256 there
    return hashlib.sha1(content, usedforsecurity=False).hexdigest()
