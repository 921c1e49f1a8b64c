"""The samples in the wheel, and its long description: README.md with links that also work away from the repository.

Pages of docs/ are at the project's URL `Documentation`, other files at its `Repository`, both in pyproject.toml.
Without such a URL a link is its text alone, and a picture is left out. All else is in pyproject.toml.
"""

from __future__ import annotations

import gzip
import re
import tarfile
import tomllib
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent
#: FOLDERS of ddnn_traces/store/samples.py, which cannot be imported before the package is built.
SAMPLES = {"sample": "data/sample", "traces": "tests/traces/runs", "sharing": "data/sharing"}
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:)([^)\s#]+)(#[^)\s]*)?\)")


def long_description() -> str:
    """README.md with absolute links."""
    project = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    urls = {name.lower(): url.rstrip("/") for name, url in project.get("urls", {}).items()}
    site, files = urls.get("documentation"), urls.get("repository") or urls.get("source")

    def absolute(match: re.Match[str]) -> str:
        picture, text, path, anchor = match[1], match[2], match[3], match[4] or ""
        if path.startswith("docs/") and site:
            address = f"{site}/{re.sub('[.]md$', '.html', path.removeprefix('docs/'))}{anchor}"
        elif files:
            address = f"{files}/{'raw' if picture else 'blob'}/HEAD/{path}{anchor}"
        else:
            return "" if picture else text
        return f"{picture}[{text}]({address})"

    return _LINK.sub(absolute, (HERE / "README.md").read_text(encoding="utf-8"))


class BuildWithSamples(build_py):
    """Packs what ddnn_traces.sample() gives: a file each in the wheel, in place of 1,700."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:  # the checkout has the folders
            return
        for name, folder in SAMPLES.items():
            archive = Path(self.build_lib) / "ddnn_traces" / "data" / f"{name}.tar.gz"
            archive.parent.mkdir(parents=True, exist_ok=True)
            # without times and owners: the same bytes each time
            with gzip.GzipFile(archive, "wb", mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as files:
                for path in sorted((HERE / folder).rglob("*")):
                    files.add(path, f"{name}/{path.relative_to(HERE / folder)}", recursive=False, filter=_plain)


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.mtime = entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o755 if entry.isdir() else 0o644
    return entry


setup(
    cmdclass={"build_py": BuildWithSamples},
    long_description=long_description(),
    long_description_content_type="text/markdown",
)
