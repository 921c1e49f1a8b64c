"""Which words of a free text are known to identify nobody: what is not known is withheld or confirmed, never guessed.

A name, a model, a word of run.toml: every word of it is in vocabulary.toml, or is a number that a stated field has, or
one with a unit or after a word that is numbered (1ms, mlp12, worker-3). A text that the publisher wrote as prose may
have other words of letters alone; a date, a phone number or a list of nodes is not known.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from pathlib import Path

from ddnn_traces.query import catalogue
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.store import schema

Span = tuple[int, int]

_TOKEN = re.compile(
    r"[^\W\d_]+[0-9]+(?:\.[0-9]+)+(?![^\W_])|(?P<number>[0-9]+(?:\.[0-9]+)*)(?P<unit>[^\W\d_]*)(?![^\W_])|[^\W_]+"
)
_NUMBERED = re.compile(r"(?P<word>[^\W\d_]+)(?P<number>[0-9]+(?:\.[0-9]+)*)")
_LETTER_NUMBER, _DIGIT = re.compile(r"[^\W\d_][0-9]+"), re.compile("[0-9]")
#: One mark between a word and its number.
_MARK = re.compile(r"[-_. =]")
#: An absolute path, whose folders are unknown, whatever words they are.
_ABSOLUTE = re.compile(r"(?<![\w.~/:])/[\w.+@~-]+/\S*|(?<!\w)[A-Za-z]:\\\S*|~\w\S*")
#: Of a number without a unit, and of one with a unit.
_MOST_DIGITS, _MOST_WITH_UNIT = 3, 4
#: From so many numbers of one word or unit on, a text may hold an address.
_MANY = 3
#: Letters of a service's key.
_SHORTEST_KEY = 16
#: No number begins with 0 but 0 and 0.5: 001 is of a list of nodes, 0254 an octal number, 049 a country.
_PLAIN = re.compile(r"(?:0|[1-9][0-9]*)(?:\.[0-9]{1,3})?")


@cache
def _vocabulary() -> dict[str, frozenset[str]]:
    text = (Path(__file__).parent / "vocabulary.toml").read_text(encoding="utf-8")
    return {name: frozenset(words.split()) for name, words in tomllib.loads(text).items() if isinstance(words, str)}


#: Columns of runs that ingest computes.
_DERIVED = ("clock_offset_ns", "clock_offset_estimate_ns", "clock_drift_ppm")


@cache
def _phrases() -> re.Pattern[str]:
    """Words that pass together: vit_b_16, whatever mark is between them."""
    with (Path(__file__).parent / "vocabulary.toml").open("rb") as file:
        phrases = tomllib.load(file)["phrases"]
    every = "|".join("[-_/. ]".join(map(re.escape, phrase.split())) for phrase in phrases)
    return re.compile(rf"(?<![^\W_])(?:{every})(?![^\W_])", re.IGNORECASE)


def unknown(text: str, numbers: Collection[float] = (), allowed: Iterable[str] = ()) -> list[Span]:
    """Start and end of each part of a name that is not known; words side by side are one part.

    numbers: values of the run's stated fields, which may stand in it. allowed: words and phrases that the publisher
    confirmed, in any case.
    """
    confirmed = [*_occurrences(text, allowed), *(match.span() for match in _phrases().finditer(text))]
    paths = [match.span() for match in _ABSOLUTE.finditer(text)]
    tokens = [token for token in _TOKEN.finditer(text) if not _within(token.span(), confirmed)]
    known = [_is_known(text, token, numbers) and not _within(token.span(), paths) for token in tokens]
    for number, token in enumerate(tokens):  # W47 after 2026, n3 after r17c2: a part of it
        others = [tokens[k] for k in (number - 1, number + 1) if 0 <= k < len(tokens) and not known[k]]
        near = [other[0] for other in others if 1 in (token.start() - other.end(), other.start() - token.end())]
        if _LETTER_NUMBER.fullmatch(token[0]) and any(map(_DIGIT.search, near)):
            known[number] = False
    many = _many_numbers(tokens)
    found: list[Span] = []
    for token, is_known in zip(tokens, known, strict=True):
        if is_known and _kind(token) not in many:
            continue
        start, end = token.span()
        # nothing but marks between two unknown parts: they are one, so that its form is not left either
        if found and not _TOKEN.search(text, found[-1][1], start):
            start = found.pop()[0]
        found.append((start, end))
    return found


def _many_numbers(tokens: Iterable[re.Match[str]]) -> set[str]:
    """Words and units with _MANY different numbers in one text: n10-n20-n30-n7, 10ms 20ms 30ms."""
    numbers: dict[str, set[str]] = {}
    for token in tokens:
        if kind := _kind(token):
            numbers.setdefault(kind, set()).add(token[0].casefold())
    return {kind for kind, found in numbers.items() if len(found) >= _MANY}


def _kind(token: re.Match[str]) -> str:
    """The word before or the unit behind the number of a token that is both; else empty."""
    if token["number"] is not None:
        return f"number {token['unit'].casefold()}" if token["unit"] else ""
    parts = _NUMBERED.fullmatch(token[0].casefold())
    return parts["word"] if parts else ""


def _is_known(text: str, token: re.Match[str], numbers: Collection[float]) -> bool:
    word = token[0].casefold()
    vocabulary = _vocabulary()
    if word in vocabulary["words"] or word in vocabulary["numbered"]:
        return True
    if token["number"] is None:
        parts = _NUMBERED.fullmatch(word)
        if parts is None or parts["word"] not in vocabulary["numbered"]:
            return False
        if parts["word"] == "w" and re.fullmatch("[1-4][0-9]|5[0-3]", parts["number"]):  # a week
            return False
        padded = parts["number"] if len(parts["word"]) == 1 else parts["number"].lstrip("0") or "0"  # loss05
        return _is_short(padded)
    number, unit = token["number"], token["unit"].casefold()
    if number == "0":
        return True
    if not _PLAIN.fullmatch(number):
        return False
    if unit:
        return unit in vocabulary["units"] and len(number.partition(".")[0]) <= _MOST_WITH_UNIT
    return float(number) in numbers or (_is_short(number) and _follows_numbered(text, token.start()))


def _is_short(number: str) -> bool:
    return _PLAIN.fullmatch(number) is not None and len(number.replace(".", "")) <= _MOST_DIGITS


def _follows_numbered(text: str, start: int) -> bool:
    """Whether the word before a number, with one mark between them, is one that is numbered."""
    if start < 2 or not _MARK.fullmatch(text[start - 1]):
        return False
    before = re.search(r"[^\W\d_]+\Z", text[: start - 1])
    return before is not None and before[0].casefold() in _vocabulary()["numbered"] - _SHORT_WORDS


#: Letters that are numbered only where the number is joined to them.
_SHORT_WORDS = frozenset("nrkblmpsvwxfqt")


def _occurrences(text: str, phrases: Iterable[str]) -> Iterator[Span]:
    """Where words and phrases stand in a text, in any case, not as a part of a longer word."""
    for phrase in filter(None, map(str.strip, phrases)):
        pattern = rf"(?<![^\W_]){re.escape(phrase)}(?![^\W_])"
        yield from (match.span() for match in re.finditer(pattern, text, re.IGNORECASE))


def _within(span: Span, others: Iterable[Span]) -> bool:
    return any(start <= span[0] and span[1] <= end for start, end in others)


def shown(word: str) -> str:
    """An unknown word for a message; of a long one, which may be a key or a token, its start alone."""
    return word if len(word) < _SHORTEST_KEY else f"{word[:4]}... ({len(word)} letters)"


# --- free text of a dataset


def stated_numbers(dataset: Dataset) -> dict[str, frozenset[float]]:
    """The numbers of each run's stated fields, and the batch of a rank, which names of runs have."""
    columns = [
        c.name for c in schema.table("runs").columns if c.type in ("int64", "float64") and c.name not in _DERIVED
    ]
    rows = dataset.sql_arrow(f"SELECT run_id, {', '.join(columns)} FROM runs").to_pylist()
    return {
        row["run_id"]: frozenset(
            [
                *(row[name] for name in columns if row[name] is not None),
                (row["batch_size"] or 0) / (row["ranks_per_host"] or 1),
            ]
        )
        for row in rows
    }


def free_texts(dataset: Dataset) -> list[tuple[str, str, str]]:
    """Run, what it is (model, name of a run) and text of all free text in the tables, each once, in order."""
    columns = [
        (table, column.name)
        for table in schema.TABLES
        for column in schema.table(table).columns
        if column.identifies == "run" and column.type == "string" and (column.name != "run_id" or table == "runs")
    ]
    union = " UNION ".join(
        f"SELECT run_id, '{_named(table, name)}' AS what, {name} AS text FROM {table} WHERE {name} IS NOT NULL"
        for table, name in columns
    )
    rows = dataset.sql_arrow(f"{union} ORDER BY what, text, run_id").to_pylist()
    return [(row["run_id"], row["what"], row["text"]) for row in rows]


def _named(table: str, column: str) -> str:
    return "name of a run" if column == "run_id" else "name of an event" if table == "events" else column


def unknown_of(dataset: Dataset, allowed: Collection[str] = ()) -> dict[str, list[str]]:
    """The unknown parts of a dataset's free text, each with where it is: model, name of a run."""
    numbers = stated_numbers(dataset)
    found: dict[str, list[str]] = {}
    for run_id, what, text in free_texts(dataset):
        for start, end in unknown(text, numbers.get(run_id, ()), allowed):
            places = found.setdefault(text[start:end], [])
            if what not in places:
                places.append(what)
    return found


# --- prose

#: What stands around a word of a sentence.
_AROUND = " \t.,;:!?()[]\"'*`\u2018\u2019\u201c\u201d\u2013\u2014-"
_WORD = re.compile(r"[^\W\d_]+(?:['\u2019/&+-][^\W\d_]+)*['\u2019]?")
#: 12, 1,024, 0.25, 10%, 3-5; 2026 is a year.
_IN_PROSE = re.compile(r"(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,4}(?:\.[0-9]{1,2})?|[0-9]{1,3}[-\u2013][0-9]{1,3})%?")
_ZERO = re.compile(r"0[0-9]")
_MIXED = re.compile(r"[^\W\d_]*[a-z][A-Z]|[A-Z]{2,}[a-z]")
_MONTH = re.compile(
    r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|sept|oct|nov|dec|january|february|march|april|june|july|august|september"
    r"|october|november|december)",
    re.IGNORECASE,
)
_WEEK = re.compile(r"weeks?|wk|kw", re.IGNORECASE)


def unknown_in_prose(text: str, allowed: Iterable[str] = (), known: Collection[str] | None = None) -> list[str]:
    """The words of a text that are neither plain words, numbers nor in the vocabulary, in their order.

    allowed: words and phrases that are stated or confirmed. known: all plain words that pass, in small letters; None:
    every word of letters alone.
    """
    confirmed = list(_occurrences(text, allowed))
    found: list[str] = []
    before = ""
    for match in re.finditer(r"\S+", text):
        word = match[0].strip(_AROUND)
        start = match.start() + (match[0].find(word) if word else 0)
        if word and not _within((start, start + len(word)), confirmed) and not _is_prose(word, before, known):
            found.append(word)
        before = match[0]
    return list(dict.fromkeys(found))


def _is_prose(word: str, before: str, known: Collection[str] | None) -> bool:
    if word in _vocabulary()["prose"]:
        return True
    if _WORD.fullmatch(word) and word.count("/") < 2:
        if _MONTH.fullmatch(word) and re.search(r"(?<![0-9])[0-9]{1,2}(?:st|nd|rd|th)?[.,]?\Z", before):
            return False
        if all(part.casefold() in _vocabulary()["words"] for part in re.findall(r"[^\W\d_]+", word)):
            return True
        if known is not None:
            return all(part.casefold() in known for part in re.findall(r"[^\W\d_]+", word))
        return not _MIXED.match(word)
    if _IN_PROSE.fullmatch(word):
        # two numbers side by side are a phone number, and one beside a month or a week is a date
        dated = _MONTH.fullmatch(before.strip(_AROUND)) or _WEEK.fullmatch(before.strip(_AROUND))
        follows = re.search(r"[0-9)]\Z", before) or (dated and len(word) <= 2)
        return not follows and not any(_ZERO.match(part) for part in re.split("[-\u2013]", word))
    return not re.fullmatch(r"[0-9.,:/-]+", word) and not unknown(word)


# --- words of this program


@cache
def own_text() -> str:
    """What this program writes into releases whatever is in them, in small letters: schemas/ and queries/, the licences
    and the strings of the modules that describe a release.
    """
    texts = [path.read_text(encoding="utf-8") for path in schema.shipped_folder("schemas").glob("*.toml")]
    texts += [query.sql for query in catalogue.catalogue().values()]
    package = Path(__file__).parents[1]
    texts += [path.read_text(encoding="utf-8") for path in (package / "licences").iterdir() if path.is_file()]
    for module in (*(package / "descriptions").glob("*.py"), package / "anonymise" / "method_text.py"):
        tree = ast.parse(module.read_text(encoding="utf-8"))
        strings = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
        texts += [text for text in strings if isinstance(text, str)]
    return "\n".join(" ".join(text.lower().split()) for text in texts)


@cache
def own_words() -> frozenset[str]:
    """The words of own_text(), whole and what stands between - and _."""
    words = set(re.findall(r"[\w-]+", own_text()))
    return frozenset(words.union(*(re.split("[_-]", word) for word in words)))
