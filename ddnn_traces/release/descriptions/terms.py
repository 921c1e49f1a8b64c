"""The parts that several descriptions share: paths, types, sizes, foreign keys, addresses, wording, JSON and YAML."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ddnn_traces.errors import needs_extra
from ddnn_traces.release import facts
from ddnn_traces.release.anonymise import method_text
from ddnn_traces.store import schema
from ddnn_traces.text import counted

#: The media type that mlcroissant can load; application/vnd.apache.parquet passes its check, but cannot be read.
PARQUET = "application/x-parquet"

#: Media types of a release's files, by the end of their names.
MEDIA_TYPES = {
    ".json": "application/json", ".md": "text/markdown", ".cff": "application/yaml", ".csv": "text/csv",
    ".pcap": "application/vnd.tcpdump.pcap", ".gz": "application/gzip", ".toml": "application/toml",
    ".log": "text/plain", ".svg": "image/svg+xml", ".yaml": "application/yaml", ".parquet": PARQUET,
}  # fmt: skip


class Reference(NamedTuple):
    """A foreign key: `columns` of a table are the key of another, and refer to its rows."""

    table: str
    columns: tuple[str, ...]


def definition(release: facts.Release, table: facts.Table) -> schema.Table:
    """Columns, key and meaning of a table of the release: schemas/, changed by the anonymisation."""
    return method_text.released(table.name, release.anonymisation)


def pattern(table: str, split: str | None = None) -> str:
    """Glob that matches the whole path of each of a table's files (of a split), relative to the release."""
    return f"{table}/{f'{split}-' if split else ''}*.parquet"


def references(release: facts.Release, table: schema.Table) -> Iterator[Reference]:
    """The other tables of the release to whose rows this one's rows refer: schemas/ name a table as a column's source.

    Only where all of that table's key is here and never null, so that every row refers to one.
    """
    own = {column.name: column for column in table.columns}
    present = {other.name for other in release.tables}
    for name in schema.TABLES:
        key = schema.table(name).key
        named = {column.name for column in table.columns if column.source == name}
        if name == table.name or name not in present or not named & set(key):
            continue
        if all(part in own and not own[part].nullable for part in key):
            yield Reference(name, key)


def explained(column: schema.Column) -> str:
    """Meaning, source and known inaccuracy of a column as one text."""
    inaccuracy = f". Known inaccuracy: {column.inaccuracy}" if column.inaccuracy else ""
    return f"{column.meaning[:1].upper()}{column.meaning[1:]}. Source: {column.source}{inaccuracy}."


def media_type(path: str) -> str:
    """Media type by a file's ending."""
    return next((kind for ending, kind in MEDIA_TYPES.items() if path.endswith(ending)), "application/octet-stream")


def readable_size(files: Iterable[facts.File]) -> str:
    """The bytes of files in the largest decimal unit that leaves a number above one."""
    size = sum(file.bytes for file in files)
    value, unit = float(size), "bytes"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{size} bytes" if unit == "bytes" else f"{value:.1f} {unit}"


def licence_url(licence: str) -> str | None:
    """Address of a licence's text by its SPDX identifier; None for the publisher's own (LicenseRef-...)."""
    return None if licence.startswith("LicenseRef-") else f"https://spdx.org/licenses/{licence}"


def doi_url(doi: str | None) -> str | None:
    """Address of a DOI, if there is one."""
    return f"https://doi.org/{doi}" if doi else None


def orcid_url(orcid: str | None) -> str | None:
    """Address of an ORCID, if there is one."""
    return f"https://orcid.org/{orcid}" if orcid else None


def address(about: facts.About) -> str | None:
    """Address of the release: its own, else its DOI's."""
    return about.url or doi_url(about.doi)


#: Pages of repositories: the files are not below them.
_PAGES = re.compile(
    r"https?://(?:(?:[\w.-]+\.)?(?:zenodo|doi|osf|datadryad|kaggle|openml|ieee-dataport|github|gitlab|figshare)\.(?:org|io|com)"
    r"|hdl\.handle\.net|(?:dx\.)?doi\.org)/|.*(?:[?#]|\.(?:html?|php|aspx?)$)|.*/dataset\.xhtml",
    re.IGNORECASE,
)
_HUB = re.compile(r"https?://(?:huggingface\.co|hf\.co)/datasets/(?P<name>[\w.-]+/[\w.-]+)/?")


def files_url(about: facts.About) -> str | None:
    """Address of the folder of the files, which ends with a slash; None where they have none.

    As stated; else the url, unless that is the page of a repository. At the Hub it is that of this version's tag.
    """
    if about.files_url is not None or about.url is None:
        return None if about.files_url in (None, ".") else f"{about.files_url.rstrip('/')}/"
    if at_hub := _HUB.fullmatch(about.url):
        return f"https://huggingface.co/datasets/{at_hub['name']}/resolve/v{about.version}/"
    return None if _PAGES.match(about.url) else f"{about.url.rstrip('/')}/"


def paper_url(paper: facts.Publication) -> str | None:
    """Address of a paper: its DOI's, else its own."""
    return doi_url(paper.doi) or paper.url


#: Words that name an organisation in English, French, German, Italian and Spanish.
_ORGANISATIONS = re.compile(
    r"\b(?:universit\w+|institut\w*|istituto|college|school|hochschule|laborator\w+|lab|labs|cent(?:er|re|ro)|zentrum"
    r"|department|facult[yé]|group|team|project|consortium|collaboration|foundation|stiftung|society|association"
    r"|agency|council|ministry|research|network|networks|initiative|alliance|gmbh|inc|ltd|llc|corp|corporation|company)\b",
    re.IGNORECASE,
)


def is_organisation(person: facts.Person) -> bool:
    """As stated, else by the words of its name; what has an ORCID or one word before a comma is a person."""
    if person.organisation is not None:
        return person.organisation
    family, comma, _ = person.name.partition(",")
    inverted_name = bool(comma) and " " not in family.strip()
    return not person.orcid and not inverted_name and bool(_ORGANISATIONS.search(person.name))


def names(person: facts.Person) -> tuple[str, str]:
    """Given names and family name of "Family, Given", else of "Given Family", the last word with the particles before
    it being the family's as in BibTeX; of a single word and of an organisation ("", name)."""
    if is_organisation(person):
        return "", person.name
    family, comma, given = person.name.partition(",")
    if comma:
        return given.strip(), family.strip()
    words = person.name.split()
    first = len(words) - 1
    while first > 1 and words[first - 1].islower():  # van der Berg, de la Cruz
        first -= 1
    return " ".join(words[:first]), " ".join(words[first:])


def inverted(person: facts.Person) -> str:
    """Family, Given; of a single word and of an organisation its name."""
    given, family = names(person)
    return f"{family}, {given}" if given else family


def summary(release: facts.Release) -> str:
    """The publisher's description, else one from the facts; runs that were not measured come first."""
    return "\n\n".join([*unmeasured(release), release.about.description.strip() or contents(release)])


def contents(release: facts.Release) -> str:
    """The content of the release in one sentence."""
    runs, tables = counted(len(release.runs), "run"), counted(len(release.tables), "table")
    return f"Traffic of distributed deep-learning training: {runs} in {tables} of Parquet files."


def sources(release: facts.Release) -> dict[str, list[str]]:
    """Names of the runs by their source (runs.source: capture, testbed, simulation, ...)."""
    found: dict[str, list[str]] = {}
    for run in release.runs:
        found.setdefault(str(run.get("source")), []).append(str(run["run_id"]))
    return dict(sorted(found.items()))


#: Sources of runs that were not measured: keyword, description.
_UNMEASURED = {
    "ns3": ("simulated", "simulated (ns-3) and not measured"),
    "simulation": ("simulated", "simulated and not measured"),
    "synthetic": ("synthetic", "synthetic: generated by the laws of collectives and not measured"),
}


def unmeasured(release: facts.Release) -> list[str]:
    """A sentence for each kind of runs that were not measured: all, or how many."""
    found = []
    for source, runs in sources(release).items():
        if source in _UNMEASURED:
            every = len(runs) == len(release.runs)
            those = "The data are" if every else f"{len(runs):,} of {counted(len(release.runs), 'run')} are"
            found.append(f"{those} {_UNMEASURED[source][1]}.")
    return found


def keywords(release: facts.Release) -> list[str]:
    """The publisher's keywords, and synthetic or simulated where there are such runs."""
    sources_named = [_UNMEASURED[source][0] for source in sources(release) if source in _UNMEASURED]
    return list(dict.fromkeys([*release.about.keywords, *sources_named]))


def contact(text: str) -> dict[str, str]:
    """A contact as schema.org has it: an e-mail address, an address in the web, or a name."""
    if re.fullmatch(r"[^@\s<>]+@[^@\s<>]+", text.strip()):
        return {"email": text.strip()}
    return {"url" if re.fullmatch(r"https?://\S+", text.strip()) else "name": text.strip()}


def identifier(text: str, joint: str = "-") -> str:
    """A name of small letters, digits and joints: the same for the same text, also where it has no such letters."""
    ascii_only = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    name = joint.join(re.findall(r"[a-z0-9]+", ascii_only))[:60].strip(joint)
    return name or f"release{joint}{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def recommended(about: facts.About) -> list[str]:
    """The values that the standards of the descriptions recommend and the publisher did not give."""
    values = {
        "url or doi (Croissant requires an address; only by url or files_url is it loaded from the web)": address(
            about
        ),
        "publisher": about.publisher,
        "contact": about.contact,
        "an affiliation of each creator": all(
            person.affiliation or is_organisation(person) for person in about.creators
        ),
    }
    return [name for name, value in values.items() if not value]


def originals(release: facts.Release) -> dict[str, str | None]:
    """The original captures of the release by name, with their hash as in release.json where it is known."""
    return dict(sorted({name: digest for step in release.provenance for name, digest in step.inputs.items()}.items()))


def digest_property(digest: str | None) -> dict[str, str]:
    """The property of schema.org that has the hash of an original capture: only SHA-256 has one of its own."""
    if digest is None:
        return {}
    return {"identifier" if ":" in digest else "sha256": digest}


def citation(about: facts.About) -> str:
    """The release as one line of a list of references."""
    names = "; ".join(person.name for person in about.creators)
    text = f"{names} ({about.published[:4]}): {about.title}. Version {about.version}."
    publisher = f"{about.publisher}." if about.publisher else None
    return " ".join(filter(None, [text, publisher, doi_url(about.doi) or about.url]))


def json_text(document: Mapping[str, Any]) -> str:
    """A JSON document as text: the same text for the same content."""
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def yaml_text(document: Mapping[str, Any]) -> str:
    """A YAML document, keys in the order given. Raises MissingExtra without PyYAML."""
    with needs_extra():
        import yaml

    return str(yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True, width=110, default_flow_style=False))


def given(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an object that have a value."""
    return {name: value for name, value in fields.items() if value not in (None, "", [])}


def data_file(name: str) -> dict[str, Any]:
    """A JSON file of this package: the schema or context that a standard publishes. Not shared: may be changed."""
    return dict(json.loads((Path(__file__).parent / name).read_text(encoding="utf-8")))
