"""A local server that answers like Zenodo's deposit API, for the part that push uses.

Zenodo cannot run here. Requests, states and the fields of answers are after recorded ones:

- developers.zenodo.org (repository zenodo/developers.zenodo.org), source/includes/overview/_quickstart.md: creation
  (201, links, prereserve_doi, "state": "unsubmitted", "submitted": false), PUT into links.bucket with the answer's
  "checksum": "md5:...", PUT of the metadata (200), publish (202), 401 without a token;
  resources/deposit-actions/_newversion.md: 201, the draft by links.latest_draft, the same draft as long as it is one.
- Zenodo's own tests (repository zenodo/zenodo-rdm, site/tests/legacy): test_quickstart.py and
  deposits/test_rest_api_simpleflow.py: listing is an array, the new version holds the files of the one before and can
  lose them, PUT and publish of a public deposit answer 404, its files cannot be changed; test_files_operations.py:
  files have id, filename, filesize and a bare MD5, PUT of a key that is there replaces it, DELETE answers 204 without
  a body.

A body that ends before its Content-Length leaves a file without a checksum, as Zenodo keeps the entry that it made
before the content came. Titles and descriptions are kept as they were sent; Zenodo cleans the HTML.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from web import Answer, Request, json_answer


@dataclass
class Deposit:
    number: int
    metadata: dict[str, Any]
    files: dict[str, bytes | None] = field(default_factory=dict)
    submitted: bool = False
    draft: int | None = None


@dataclass
class ZenodoServer:
    """url has to be set before the first request. token: the one that is right."""

    token: str
    url: str = ""
    deposits: dict[int, Deposit] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    spoil: Callable[[Request], Answer | None] = lambda request: None

    def handle(self, request: Request) -> Answer:
        self.requests.append(request)
        spoilt = self.spoil(request)
        return self.answer(request) if spoilt is None else spoilt

    def answer(self, request: Request) -> Answer:
        if request.headers.get("authorization") != f"Bearer {self.token}":
            message = "The server could not verify that you are authorized to access the URL requested."
            return json_answer({"message": message, "status": 401}, 401)
        parts = [unquote(part) for part in urlsplit(request.path).path.removeprefix("/api/").split("/")]
        if parts[0] == "files":
            return self._bucket(request, self.deposits[int(parts[1])], parts[2])
        if parts == ["deposit", "depositions"]:
            return self._all(request)
        deposit = self.deposits.get(int(parts[2]))
        if deposit is None:
            return json_answer({"message": "PID does not exist.", "status": 404}, 404)
        return self._one(request, deposit, parts[3:])

    def _all(self, request: Request) -> Answer:
        if request.method == "GET":
            return json_answer([self._state_of(deposit) for deposit in reversed(self.deposits.values())])
        deposit = self._new(request.json.get("metadata", {}))
        return json_answer(self._state_of(deposit), 201)

    def _new(self, metadata: dict[str, Any], files: dict[str, bytes | None] | None = None) -> Deposit:
        number = 1000 + len(self.deposits)
        self.deposits[number] = Deposit(number, metadata, dict(files or {}))
        return self.deposits[number]

    def _one(self, request: Request, deposit: Deposit, what: list[str]) -> Answer:
        match (request.method, *what):
            case ("GET",):
                return json_answer(self._state_of(deposit))
            case ("GET", "files"):
                return json_answer([self._file(deposit, name) for name in deposit.files])
            case ("DELETE", "files", name) if not deposit.submitted:
                del deposit.files[name]
                return Answer(204)
            case ("PUT",) if not deposit.submitted:
                deposit.metadata = request.json["metadata"]
                return json_answer(self._state_of(deposit))
            case ("POST", "actions", "publish") if not deposit.submitted:
                deposit.submitted = True
                return json_answer(self._state_of(deposit), 202)
            case ("POST", "actions", "newversion") if deposit.submitted:
                draft = self.deposits.get(deposit.draft or 0)
                if draft is None or draft.submitted:
                    draft = self._new(dict(deposit.metadata), deposit.files)
                    deposit.draft = draft.number
                return json_answer(self._state_of(deposit), 201)
        return json_answer({"message": "Not found", "status": 404}, 404)

    def _bucket(self, request: Request, deposit: Deposit, name: str) -> Answer:
        if deposit.submitted:
            return json_answer({"message": "Permission denied.", "status": 403}, 403)
        if request.method == "DELETE":
            del deposit.files[name]
            return Answer(204)
        if len(request.body) < int(request.headers["content-length"]):
            deposit.files[name] = None
            return Answer(0)
        deposit.files[name] = request.body
        md5 = hashlib.md5(request.body).hexdigest()
        return json_answer({"key": name, "size": len(request.body), "checksum": f"md5:{md5}", "is_head": True}, 201)

    def _file(self, deposit: Deposit, name: str) -> dict[str, Any]:
        data = deposit.files[name]
        link = f"{self.url}/deposit/depositions/{deposit.number}/files/{name}"
        md5 = hashlib.md5(data).hexdigest() if data is not None else ""
        return {"id": name, "filename": name, "filesize": len(data or b""), "checksum": md5, "links": {"self": link}}

    def _state_of(self, deposit: Deposit) -> dict[str, Any]:
        here = f"{self.url}/deposit/depositions/{deposit.number}"
        doi = f"10.5281/zenodo.{deposit.number}"
        links = {
            "self": here, "html": f"https://zenodo.org/deposit/{deposit.number}", "files": f"{here}/files",
            "bucket": f"{self.url}/files/{deposit.number}", "publish": f"{here}/actions/publish",
            "latest_draft": f"{self.url}/deposit/depositions/{deposit.draft or deposit.number}",
        }  # fmt: skip
        document = {"id": deposit.number, "links": links, "submitted": deposit.submitted}
        document |= {"metadata": deposit.metadata | {"prereserve_doi": {"doi": doi, "recid": deposit.number}}}
        return document | ({"state": "done", "doi": doi} if deposit.submitted else {"state": "unsubmitted"})
