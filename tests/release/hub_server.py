"""A local server that answers like the Hugging Face Hub, for the part that push uses. The real client talks to it.

The Hub cannot run here, and no recorded upload to it was found in public. What it answers is after what the client
library asks for and checks (huggingface_hub 2.4: hf_api.py, _commit_api.py, lfs.py, utils/_http.py; its tests,
repository huggingface/huggingface_hub, tests/test_hf_api.py, run against the Hub's own staging server: messages and
X-Error-Code of what is missing) and the description of the same protocol by another server of it (KohakuHub:
preupload, LFS batch, commit in NDJSON). Files go by large file storage (LFS basic); the newer Xet protocol, which the
client prefers at the real Hub, is switched off, and not tested.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from web import Answer, Request, json_answer

Tree = dict[str, bytes]


@dataclass
class HubServer:
    """One dataset repository, ada/traces, or none yet. lfs: content by SHA-256."""

    token: str
    url: str = ""
    commits: dict[str, Tree] | None = None
    head: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    lfs: dict[str, bytes] = field(default_factory=dict)
    private: bool | None = None
    requests: list[Request] = field(default_factory=list)
    spoil: Callable[[Request], Answer | None] = lambda request: None

    def handle(self, request: Request) -> Answer:
        self.requests.append(request)
        spoilt = self.spoil(request)
        return self.answer(request) if spoilt is None else spoilt

    def answer(self, request: Request) -> Answer:
        path = unquote(urlsplit(request.path).path)
        if path.startswith("/lfs/"):
            return self._object(request, path.removeprefix("/lfs/"))
        if request.headers.get("authorization") != f"Bearer {self.token}":
            return json_answer({"error": "Invalid credentials in Authorization header"}, 401)
        if path == "/api/repos/create":
            return self._create(request)
        if path == "/api/validate-yaml":
            return json_answer({"errors": [], "warnings": []})
        if self.commits is None or not path.startswith(("/api/datasets/ada/traces", "/datasets/ada/traces")):
            return json_answer({"error": "Repository not found"}, 404, **{"X-Error-Code": "RepoNotFound"})
        return self._repository(request, path.partition("ada/traces")[2])

    def tree(self, revision: str = "main") -> Tree:
        """Files of a revision."""
        assert self.commits is not None
        return self.commits[self.head if revision == "main" else self.tags.get(revision, revision)]

    def create(self, files: Tree | None = None) -> None:
        """The repository, with what the Hub puts into it."""
        self.commits = {}
        self._commit({".gitattributes": b"*.parquet filter=lfs\n"} | (files or {}))

    def _create(self, request: Request) -> Answer:
        if self.commits is not None:
            return json_answer({"error": "You already created this dataset repo", "url": "x"}, 409)
        self.private = request.json.get("visibility") == "private" or bool(request.json.get("private"))
        self.create()
        return json_answer({"url": f"{self.url}/datasets/ada/traces", "id": "ada/traces"})

    def _commit(self, tree: Tree) -> str:
        assert self.commits is not None
        self.head = hashlib.sha1(repr((self.head, sorted(tree.items()))).encode()).hexdigest()
        self.commits[self.head] = tree
        return self.head

    def _repository(self, request: Request, path: str) -> Answer:
        what = path.strip("/").split("/")
        match (request.method, what[0]):
            case ("GET", "refs"):
                tags = [
                    {"name": name, "ref": f"refs/tags/{name}", "targetCommit": at} for name, at in self.tags.items()
                ]
                main = {"name": "main", "ref": "refs/heads/main", "targetCommit": self.head}
                return json_answer({"branches": [main], "converts": [], "tags": tags})
            case ("GET", "tree"):
                return json_answer([self._entry(name, data) for name, data in sorted(self.tree(what[1]).items())])
            case ("GET", "revision"):
                return json_answer({"id": "ada/traces", "sha": self.head, "tags": [], "siblings": []})
            case ("POST", "preupload"):
                wanted = [file["path"] for file in request.json["files"]]
                return json_answer({"files": [self._mode(name) for name in wanted]})
            case ("POST", ".git"):
                return json_answer(
                    {"transfer": "basic", "objects": [self._batch(one) for one in request.json["objects"]]}
                )
            case ("POST", "commit"):
                return self._committed(request)
            case ("POST", "tag"):
                if request.json["tag"] in self.tags:
                    return json_answer({"error": "Tag already exists"}, 409)
                self.tags[request.json["tag"]] = self.head if what[1] == "main" else what[1]
                return json_answer({})
            case ("GET" | "HEAD", "resolve"):
                return self._resolve("/".join(what[2:]))
        return json_answer({"error": f"not known here: {request.method} {path}"}, 404)

    def _entry(self, name: str, data: bytes) -> dict[str, Any]:
        oid = hashlib.sha1(f"blob {len(data)}\0".encode() + data).hexdigest()
        entry: dict[str, Any] = {"type": "file", "path": name, "size": len(data), "oid": oid}
        if name.endswith(".parquet"):
            entry |= {
                "oid": "0" * 40,
                "lfs": {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130},
            }
        return entry

    def _mode(self, name: str) -> dict[str, Any]:
        mode = "lfs" if name.endswith(".parquet") else "regular"
        return {"path": name, "uploadMode": mode, "shouldIgnore": False}

    def _batch(self, one: dict[str, Any]) -> dict[str, Any]:
        known = {"oid": one["oid"], "size": one["size"]}
        if one["oid"] in self.lfs:
            return known  # no action: it is there
        return known | {"actions": {"upload": {"href": f"{self.url}/lfs/{one['oid']}"}}}

    def _object(self, request: Request, oid: str) -> Answer:
        if hashlib.sha256(request.body).hexdigest() != oid:
            return Answer(400, b"<Error><Code>BadDigest</Code></Error>")
        self.lfs[oid] = request.body
        return Answer(200)

    def _committed(self, request: Request) -> Answer:
        tree = dict(self.tree())
        for line in request.body.splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "file":
                tree[value["path"]] = base64.b64decode(value["content"])
            elif entry["key"] == "lfsFile":
                tree[value["path"]] = self.lfs[value["oid"]]
            elif entry["key"] == "deletedFile":
                del tree[value["path"]]
        oid = self._commit(tree)
        return json_answer(
            {"commitUrl": f"{self.url}/datasets/ada/traces/commit/{oid}", "commitOid": oid, "success": True}
        )

    def _resolve(self, name: str) -> Answer:
        data = self.tree().get(name)
        if data is None:
            return json_answer(
                {"error": "Entry not found"}, 404, **{"X-Error-Code": "EntryNotFound", "X-Repo-Commit": self.head}
            )
        return Answer(200, data, {"ETag": f'"{hashlib.sha1(data).hexdigest()}"', "X-Repo-Commit": self.head})
