"""Upload into a deposit at Zenodo through its REST API (developers.zenodo.org): a draft, made public only on request.

A deposit has no folders, so that the release is sent as one ZIP archive, along with its main descriptions for
readers of the record. A file is recognised by the MD5 that Zenodo returns. A public record is never changed, and what
a draft holds under the same version only on request.
"""

from __future__ import annotations

import hashlib
import html
import os
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any, cast
from urllib.parse import quote, urlsplit

from ddnn_traces.errors import DraftError, PushError, UsageError, needs_extra
from ddnn_traces.messages import Messages
from ddnn_traces.release import facts
from ddnn_traces.release.descriptions import terms
from ddnn_traces.release.push.upload_contents import (
    TRANSIENT,
    Contents,
    Item,
    Outcome,
    Parcel,
    Retry,
    Transient,
    other_content,
    scrub,
    seconds,
)
from ddnn_traces.store import layout

#: Address and variable with the token, by the target's name.
SITES = {
    "zenodo": ("https://zenodo.org/api", "ZENODO_TOKEN"),
    "zenodo-sandbox": ("https://sandbox.zenodo.org/api", "ZENODO_SANDBOX_TOKEN"),
}
_SEPARATE = (
    layout.CARD, layout.DICTIONARY, layout.DATASHEET, layout.LICENCE, layout.CHANGELOG, layout.DATACITE,
    layout.CHECKSUMS,
)  # fmt: skip
#: Prefixes of the DOIs of Zenodo itself and of its sandbox.
_OWN_DOIS = ("10.5281/zenodo.", "10.5072/zenodo.")
_TIMEOUT_S = (20, 300)
_CHUNK = 1 << 20
#: Zenodo knows SPDX's identifiers in small letters, those of 2021: for others it has these words.
_UNKNOWN_LICENCES = {"CDLA-Permissive-2.0": "other-open"}
_OWN_LICENCE = "notspecified"


@dataclass(frozen=True)
class _File:
    """A file of the deposit."""

    name: str
    bytes: int
    md5: str
    source: Item | Archive


@dataclass(frozen=True)
class Zenodo:
    """A deposit. site: a key of SITES. record: that it is a new version of, or a draft to continue.

    overwrite_draft: whether this release replaces other content in a draft of its version.
    """

    site: str
    endpoint_url: str | None = None
    record: int | None = None
    publish_deposit: bool = False
    overwrite_draft: bool = False

    @property
    def url(self) -> str:
        """Address of the API."""
        return (self.endpoint_url or SITES[self.site][0]).rstrip("/")

    def parcels(self, contents: Contents) -> list[Parcel]:
        place = f"{self.url}/deposit/depositions/{self.record or '(new)'}"
        return [Parcel(file.name, file.bytes, f"{place}/{file.name}") for file in _files(contents)]

    def push(self, contents: Contents, retry: Retry, messages: Messages) -> Outcome:
        """Fill a draft; publish it on request. Raises PushError, MissingExtra; DraftError where the draft holds other
        content under this version.
        """
        api = _Api(self, retry, messages)
        metadata = metadata_of(contents.release, self.site)
        files = _files(contents)
        draft = _draft(api, self.record, metadata)
        where, there = _html(draft.deposit), api.files(draft.deposit)
        if draft.deposit.get("submitted"):
            if other := _differing(files, there):
                raise other_content(where, contents, other)
            return Outcome.of(where, files)
        _refuse_others(where, files, there, draft.inherited)
        if other := _others(files, there, draft, metadata):
            if not self.overwrite_draft:
                raise _draft_error(where, metadata["version"], other)
            messages.info(f"{where}: overwriting {', '.join(other)}")
        if other or not _is_of(draft.deposit, metadata):
            api.describe(draft.deposit, metadata)
        missing = [file for file in files if there.get(file.name, {}).get("md5") != file.md5]
        for name in sorted(there.keys() - {file.name for file in files}):  # of the version before
            api.request("DELETE", api.own(there[name]["url"]))
        for file in missing:
            api.upload(draft.deposit, file)
        if other := _differing(files, api.files(draft.deposit)):
            raise PushError(f"{where}: {', '.join(other[:3])} did not arrive; run the same command again")
        notes: tuple[str, ...] = (
            _doi_note(draft.deposit),
            *_creator_notes(contents.release.about),
            "a draft: examine it and publish it there, or run this again with --publish-deposit",
        )
        if self.publish_deposit:
            published = api.publish(draft.deposit)
            notes = (f"public; DOI {published.get('doi') or 'as in the record'}",)
        return Outcome.of(where, files, missing, notes)


def metadata_of(release: facts.Release, site: str) -> dict[str, Any]:
    """A deposit's metadata of a release's facts, as developers.zenodo.org names them."""
    about = release.about
    text = terms.summary(release)
    described: dict[str, Any] = {
        "upload_type": "dataset",
        "title": about.title,
        "publication_date": about.published,
        "version": about.version,
        "creators": [
            terms.given({"name": terms.inverted(person), "affiliation": person.affiliation, "orcid": person.orcid})
            for person in about.creators
        ],
        "description": "".join(f"<p>{html.escape(part)}</p>" for part in re.split(r"\n\s*\n", text.strip())),
        "access_right": "open",
        "license": _licence(about.licence),
        "language": "eng",
        "keywords": terms.keywords(release),
        "related_identifiers": [
            {"identifier": paper.doi or paper.url, "relation": "isSupplementTo", "resource_type": "publication-article"}
            for paper in about.papers
            if paper.doi or paper.url
        ],
        "prereserve_doi": True,
    }
    if notes := _notes(about):
        described["notes"] = notes
    if about.doi and not about.doi.startswith(_OWN_DOIS) and site == "zenodo":
        described["doi"] = about.doi
    return described


def _licence(licence: str) -> str:
    """A licence by Zenodo's identifiers; it answers others with an internal error."""
    if terms.licence_url(licence) is None:
        return _OWN_LICENCE
    return _UNKNOWN_LICENCES.get(licence, licence.lower())


def _notes(about: facts.About) -> str:
    """What Zenodo has no field for, as HTML: its funding is by identifiers, its contributors are names of persons."""
    lines = {
        "Licence": f"{about.licence}, see {layout.LICENCE}" if _licence(about.licence) != about.licence.lower() else "",
        "Contact": about.contact,
        "Funding": "; ".join(about.funding),
    }
    return "".join(f"<p>{name}: {html.escape(text)}</p>" for name, text in lines.items() if text)


def _creator_notes(about: facts.About) -> list[str]:
    """Creators that Zenodo's API takes apart: it reads every name as a person's."""
    names = [person.name for person in about.creators if not terms.names(person)[0]]
    if not names:
        return []
    return [f"Zenodo reads every creator as a person: set {', '.join(names)} to an organisation in the draft"]


def _files(contents: Contents) -> list[_File]:
    """The files of a deposit of the release, the archive first."""
    title = re.sub(r"[^a-z0-9]+", "-", contents.release.about.title.lower()).strip("-")[:60].strip("-")
    archive = archive_of(contents)
    files = [_File(f"{title or 'release'}-{contents.version}.zip", archive.size, archive.md5, archive)]
    for item in contents.items:
        name = item.path.removeprefix("data/")
        if name in _SEPARATE:
            md5 = hashlib.md5(item.local.read_bytes(), usedforsecurity=False).hexdigest()
            files.append(_File(name, item.bytes, md5, item))
    return files


@dataclass(frozen=True)
class _Draft:
    """A deposit to fill, or the public one of this version. inherited: files of the version before, with their MD5."""

    deposit: dict[str, Any]
    inherited: Mapping[str, str]


def _draft(api: _Api, record: int | None, metadata: Mapping[str, Any]) -> _Draft:
    if record is None:
        return _Draft(api.found_or_made(metadata), {})
    deposit = api.deposit(record)
    if not deposit.get("submitted") or deposit.get("metadata", {}).get("version") == metadata["version"]:
        return _Draft(deposit, {})
    inherited = {name: file["md5"] for name, file in api.files(deposit).items()}
    return _Draft(api.new_version(deposit), inherited)


def _is_of(deposit: Mapping[str, Any], metadata: Mapping[str, Any]) -> bool:
    """Whether a deposit is of this title and version."""
    about = deposit.get("metadata", {})
    return (about.get("title"), about.get("version")) == (metadata["title"], metadata["version"])


def _others(
    files: Iterable[_File], there: Mapping[str, Mapping[str, Any]], draft: _Draft, metadata: Mapping[str, Any]
) -> list[str]:
    """What a draft holds that is neither of this release nor of the version before, by name.

    A file without a checksum is one whose upload broke off.
    """
    own = {file.name: file.md5 for file in files}
    other = [
        name
        for name, file in there.items()
        if name in own and file["md5"] not in ("", own[name], draft.inherited.get(name))
    ]
    about = draft.deposit.get("metadata", {})
    if not draft.inherited and about.get("title") and not _is_of(draft.deposit, metadata):
        other.append(f"title and version ({about['title']} {about.get('version', 'without a version')})")
    return sorted(other)


def _draft_error(where: str, version: str, other: list[str]) -> DraftError:
    return DraftError(
        f"{where}: a draft of version {version} is there with other content ({', '.join(other[:3])}); to make it this "
        "release, add --overwrite-draft; to keep it, publish yours under another --version"
    )


def _differing(files: Iterable[_File], there: Mapping[str, Mapping[str, Any]]) -> list[str]:
    own = {file.name: file.md5 for file in files}
    return sorted(name for name in own.keys() | there.keys() if there.get(name, {}).get("md5") != own.get(name))


def _refuse_others(
    where: str, files: Iterable[_File], there: Mapping[str, Mapping[str, Any]], inherited: Mapping[str, str]
) -> None:
    """Raise PushError for files of a draft that belong neither to the release nor to the version before."""
    if strange := sorted(there.keys() - {file.name for file in files} - inherited.keys()):
        raise PushError(
            f"{where}: the draft holds files that are not of this release ({', '.join(strange[:3])}); remove them "
            "there, or delete the draft, and run the same command again"
        )


def _html(deposit: Mapping[str, Any]) -> str:
    return str(deposit.get("links", {}).get("html") or f"deposit {deposit.get('id')}")


def _doi_note(deposit: Mapping[str, Any]) -> str:
    doi = deposit.get("metadata", {}).get("prereserve_doi", {}).get("doi")
    return f"record {deposit.get('id')}; DOI when it is public: {doi or deposit.get('doi') or 'see the record'}"


class _Api:
    """Zenodo's API. Raises PushError for what it refuses. The token is sent in a header, to Zenodo's address only."""

    def __init__(self, target: Zenodo, retry: Retry, messages: Messages) -> None:
        variable = SITES[target.site][1]
        token = os.environ.get(variable, "").strip()
        if not token:
            raise PushError(
                f"{target.url}: no token was found; make one there under Applications with the scopes deposit:write "
                f"and deposit:actions, and put it into the environment as {variable}"
            )
        if urlsplit(target.url).scheme not in ("http", "https"):
            raise UsageError(f"--endpoint-url {target.url}: not an address; write it as https://zenodo.example/api")
        self._url, self._token, self._variable = target.url, token, variable
        self._retry, self._messages = retry, messages
        with needs_extra():
            import requests
        self._requests = requests
        self._session = requests.Session()
        self._session.auth = self._sign  # so that none is taken from ~/.netrc

    def _sign(self, request: Any) -> Any:
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request

    def own(self, url: str) -> str:
        """An address that Zenodo gave. Raises PushError where it is another server's, which must not get the token."""
        if urlsplit(url)[:2] != urlsplit(self._url)[:2]:
            raise PushError(
                f"{self._url}: names another server, {scrub(url)}, to which nothing is sent; report that to Zenodo"
            )
        return url

    def link(self, deposit: Mapping[str, Any], name: str) -> str:
        """A link of a deposit, by its name. Raises PushError where it has none."""
        url = deposit.get("links", {}).get(name)
        if not isinstance(url, str):
            raise PushError(
                f"{_html(deposit)}: Zenodo gives no link {name!r}, as it does for a draft; examine it there"
            )
        return self.own(url)

    def deposits(self) -> list[dict[str, Any]]:
        """The owner's latest deposits. Raises Transient."""
        found = self._answer("GET", f"{self._url}/deposit/depositions", params={"size": 100, "sort": "mostrecent"})
        return list(found["hits"]["hits"] if isinstance(found, dict) else found)

    def deposit(self, record: int) -> dict[str, Any]:
        return dict(self.request("GET", f"{self._url}/deposit/depositions/{record}"))

    def found_or_made(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """The public record or else the draft of this title and version, among the owner's latest; else a new draft.

        Looked for again before each attempt, as the answer to the one before may have been lost.
        """

        def attempt() -> dict[str, Any]:
            found = [one for one in self.deposits() if _is_of(one, metadata)]
            found.sort(key=lambda one: not one.get("submitted"))
            if found:
                return found[0]
            return dict(self._answer("POST", f"{self._url}/deposit/depositions", json={"metadata": metadata}))

        return self._retry.call(attempt, self._messages)

    def publish(self, deposit: Mapping[str, Any]) -> dict[str, Any]:
        """The deposit made public. Raises PushError."""
        try:
            return dict(self.request("POST", self.link(deposit, "publish")))
        except PushError:
            now = self.deposit(int(deposit["id"]))  # an answer that was lost: public, and Zenodo refuses to repeat it
            if now.get("submitted"):
                return now
            raise

    def describe(self, deposit: Mapping[str, Any], metadata: Mapping[str, Any]) -> dict[str, Any]:
        return dict(self.request("PUT", self.link(deposit, "self"), json={"metadata": metadata}))

    def new_version(self, deposit: Mapping[str, Any]) -> dict[str, Any]:
        """The draft of a new version of a public record, the same for as long as it is a draft. Raises PushError."""
        url = f"{self._url}/deposit/depositions/{deposit['id']}/actions/newversion"
        draft = dict(self.request("GET", self.link(self.request("POST", url), "latest_draft")))
        if draft.get("submitted"):
            raise PushError(f"{_html(draft)}: Zenodo made no draft of a new version; examine the record there")
        return draft

    def files(self, deposit: Mapping[str, Any]) -> dict[str, dict[str, str]]:
        """MD5 and address of a deposit's files by name."""
        url = f"{self._url}/deposit/depositions/{deposit['id']}/files"
        return {
            file["filename"]: {
                "md5": str(file.get("checksum", "")).removeprefix("md5:"),
                "url": file.get("links", {}).get("self") or f"{url}/{quote(str(file['id']), safe='')}",
            }
            for file in self.request("GET", url)
        }

    def upload(self, deposit: Mapping[str, Any], file: _File) -> None:
        """Send a file and compare the checksum in the answer. Raises PushError."""
        url = f"{self.link(deposit, 'bucket')}/{quote(file.name)}"
        answer = self.request("PUT", url, file=file)
        if str(answer.get("checksum", "")).removeprefix("md5:") != file.md5:
            self.request("DELETE", url)
            raise PushError(
                f"{_html(deposit)}: {file.name}: the file there differs from the one that was sent, and was removed; "
                "run the same command again"
            )

    def request(self, method: str, url: str, file: _File | None = None, **more: Any) -> Any:
        """The JSON of the answer to a request; {} where it has none."""
        return self._retry.call(lambda: self._answer(method, url, file, **more), self._messages)

    def _answer(self, method: str, url: str, file: _File | None = None, **more: Any) -> Any:
        if file is not None:
            data = file.source if isinstance(file.source, Archive) else file.source.local.read_bytes()
            more |= {"data": data, "headers": {"Content-Type": "application/octet-stream"}}
        try:
            answer = self._session.request(method, url, timeout=_TIMEOUT_S, allow_redirects=False, **more)
            content = answer.json() if answer.content else {}
        except (self._requests.ConnectionError, self._requests.Timeout) as error:
            raise Transient(f"{self._url}: Zenodo cannot be reached ({scrub(error, (self._token,))})") from None
        except ValueError:
            content = {}
        if answer.status_code in TRANSIENT:
            raise Transient(
                f"{self._url}: Zenodo does not answer as it should (HTTP {answer.status_code})",
                seconds(answer.headers.get("Retry-After")),
            )
        if not 200 <= answer.status_code < 300:
            raise self._refused(answer.status_code, content)
        return content

    def _refused(self, state: int, content: Any) -> PushError:
        reason = f"HTTP {state}"
        if isinstance(content, dict):
            errors = content.get("errors") or []
            fields = [f"{one.get('field')}: {one.get('message') or one.get('messages')}" for one in errors]
            reason = "; ".join([str(content.get("message") or reason), *fields])
        reason = scrub(reason, (self._token,))
        if state in (401, 403):
            return PushError(
                f"{self._url}: Zenodo refuses the token ({reason}); check {self._variable}, and that the token has "
                "the scopes deposit:write and deposit:actions"
            )
        if state == 404:
            return PushError(f"{self._url}: Zenodo has no such deposit of yours ({reason}); check --record")
        if state == 413:
            return PushError(f"{self._url}: Zenodo has no space for it ({reason}); ask Zenodo for more")
        return PushError(f"{self._url}: Zenodo refuses ({reason}); correct that and run the same command again")


# --- the release as one archive

_BEGIN = (1980, 1, 1, 0, 0, 0)  # the earliest time that a ZIP archive can state
_FILE_MODE = 0o100644 << 16


@dataclass(frozen=True)
class Archive:
    """All files of a release in a ZIP archive: the same bytes each time, and never on the disk. size: bytes.

    The files are stored without compression, as Parquet is compressed already.
    """

    items: tuple[Item, ...]
    size: int
    md5: str

    def __len__(self) -> int:
        """Bytes; an HTTP client takes a body's length from here."""
        return self.size

    def __iter__(self) -> Iterator[bytes]:
        """The archive, piece by piece, from its start."""
        return _pieces(self.items)


def archive_of(contents: Contents) -> Archive:
    """The archive, read through once for its size and checksum. Raises OSError."""
    size, digest = 0, hashlib.md5(usedforsecurity=False)
    for piece in _pieces(contents.items):
        size += len(piece)
        digest.update(piece)
    return Archive(contents.items, size, digest.hexdigest())


class _Sink:
    """A stream for zipfile that can be written to and not searched."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._pieces.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Nothing is buffered below this."""

    def take(self) -> bytes:
        """The bytes written since the last call."""
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)


def _pieces(items: tuple[Item, ...]) -> Iterator[bytes]:
    sink = _Sink()
    with zipfile.ZipFile(cast("IO[bytes]", sink), "w", zipfile.ZIP_STORED) as archive:  # it only writes and flushes
        for item in items:
            entry = zipfile.ZipInfo(item.path, _BEGIN)
            entry.external_attr, entry.create_system = _FILE_MODE, 3
            with item.local.open("rb") as source, archive.open(entry, "w", force_zip64=item.bytes >= 1 << 31) as target:
                while chunk := source.read(_CHUNK):
                    target.write(chunk)
                    yield sink.take()
    yield sink.take()
