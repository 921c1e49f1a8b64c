"""The publisher's statements: release.toml, options, questions."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from ddnn_traces.errors import UsageError
from ddnn_traces.release import facts, request

OPTIONS = {"title": "T", "licence": "CC0-1.0", "creators": ["Ada"]}


def written(folder: Path, text: str) -> Path:
    path = folder / "release.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_options_win_over_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, 'title = "of the file"\nlicence = "CC-BY-4.0"\npublished = 2026-01-31\n')
    stated = request.complete(
        request.read(file, {"title": "of the option", "creators": ["Ada", "Bob <0000-0002-1825-0097>"]})
    )
    about = request.about(stated, "1.0.0", "2020-01-01")
    assert (about.title, about.licence, about.published, about.version) == (
        "of the option", "CC-BY-4.0", "2026-01-31", "1.0.0"
    )  # fmt: skip
    assert [(person.name, person.orcid) for person in about.creators] == [("Ada", None), ("Bob", "0000-0002-1825-0097")]


def template() -> dict[str, Any]:
    """The values of the template with its comment signs removed: no key is in the table of another."""
    return tomllib.loads(re.sub(r"(?m)^# (?=\w+ = |\[\[)", "", request.TEMPLATE))


def test_all_keys_of_the_template_are_known_and_stand_in_their_tables() -> None:
    assert set(template()) <= {field.name for field in dataclasses.fields(facts.About)}
    assert set(template()["creators"][0]) == {field.name for field in dataclasses.fields(facts.Person)}
    assert set(template()["papers"][0]) < {field.name for field in dataclasses.fields(facts.Publication)}


def test_the_unedited_template_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        request.read(written(tmp_path, request.TEMPLATE), {})
    own = "the template's own example; write your own"
    assert str(caught.value) == (
        f'{tmp_path}/release.toml: title = "Packet traces of distributed training on ...": {own} (title), here or with '
        f'--title TITLE; creators.name = "Ada Example": {own} (name), here or with --creator "NAME <ORCID>"'
    )


@pytest.mark.parametrize(
    "key",
    ["title", "description", "publisher", "doi", "url", "contact", "funding", "creators", "papers", "motivation",
     "collection", "uses", "limitations", "sensitive", "claims_time"],
)  # fmt: skip
def test_every_example_of_the_template_is_refused(key: str) -> None:
    with pytest.raises(UsageError, match=f"^{key}[. ].*: the template's own example; write your own"):
        request.read(None, {key: template()[key]} if key != "creators" else {"creators": ["ada  EXAMPLE"]})


def test_examples_that_are_good_as_they_are() -> None:
    names = ("licence", "keywords", "version", "published")
    assert request.read(None, {name: template()[name] for name in names})["keywords"] == template()["keywords"]


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("title", "Packet traces of training on \u2026"),
        ("title", "Packet traces (...)"),
        ("title", "..."),
        ("title", "<title>"),
        ("title", "{{ title }}"),
        ("title", "Traces of <your cluster>"),
        ("title", "Traces of <model>"),
        ("title", "todo"),
        ("title", "TODO: a title"),
        ("title", "Untitled"),
        ("title", "Title."),
        ("title", "???"),
        ("publisher", "XXX"),
        ("publisher", "[Insert institution]"),
        ("description", "What was trained: FIXME"),
        ("uses", "Studies.\n\n- TODO"),
        ("keywords", ["pcap", "TBD"]),
        ("funding", ["..."]),
        ("contact", "me@example.com"),
        ("contact", "Ada <ada@cs.example.edu>"),
        ("contact", "https://www.example.net/me"),
        ("url", "http://data.example.com:8080/x"),
        ("url", "https://traces.example/1"),
        ("doi", "10.5281/zenodo.XXXXXXX"),
        ("doi", "10.5281/zenodo.1234567"),
        ("doi", "https://doi.org/10.1234/anything"),
        ("doi", "10.xxxx/y"),
        ("creators", ["Your Name"]),
        ("creators", ["NAME"]),
        ("creators", ["Ada <0000-0002-1825-0098>"]),
        ("creators", ["Ada <0000-0000-0000-0000>"]),
        ("papers", [{"title": "TODO"}]),
        ("papers", [{"title": "T", "url": "https://example.org/paper"}]),
        ("licence", "TODO"),
    ],
)
def test_placeholders_are_refused(key: str, text: Any) -> None:
    with pytest.raises(UsageError, match=rf"^{key}(\.\w+)? = .*; write your own \("):
        request.read(None, {key: text})


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("title", "Ring ... or tree? Traces of all-reduce"),
        ("title", "[dataset] Traces of TODOs, examples and names of <i>E. coli</i>"),
        ("title", "The name of the example"),
        ("description", "Pings, retransmissions, and so on ..."),
        ("uses", "See [the example](https://example.org/a), and `publish <name>`."),
        ("publisher", "Example-Haus GmbH"),
        ("keywords", ["example", "test"]),
        ("contact", "ada@example-lab.org"),
        ("contact", "https://cs.test.edu/~ada"),
        ("url", "https://example.org.uk/traces"),
        ("url", "http://127.0.0.1:8000/traces"),
        ("doi", "10.5281/zenodo.5000000"),
        ("doi", "10.5072/zenodo.7"),
        ("creators", ["Ada Lovelace <0000-0002-1825-0097>", "Jo Bloggs <0000-0002-1694-233X>"]),
        ("creators", ["Max Example-Meyer"]),
        ("papers", [{"title": "TODO comments in the wild...", "authors": "A. Name, ..."}]),
    ],
)
def test_statements_that_look_alike_are_taken(key: str, text: Any) -> None:
    assert key in request.read(None, {key: text})


def test_an_answer_that_is_a_placeholder_is_refused() -> None:
    for answer in ("TODO", "Packet traces of distributed training on ..."):
        with pytest.raises(UsageError, match=r"^title = .*; write your own"):
            request.complete(request.read(None, OPTIONS | {"title": None}), lambda question, text=answer: text)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('titel = "T"', "key titel; did you mean title"),
        ('[[creators]]\nname = "Ada"\norchid = "x"', "[[creators]] unknown key orchid; did you mean orcid"),
        ('[[creators]]\norcid = "0000-0002-1825-0097"', "creator 1 has no name"),
        ('[[creators]]\nname = "Ada"\norcid = "12"', 'creators.0.orcid: "12" is not: ORCID'),
        ('[[papers]]\ndoi = "10.1/x"', "paper 1 has no title"),
        ("title = 3", "title: 3 is not: title"),
        ('version = "1.0"', 'version: "1.0" is not: semantic version'),
        ('published = "2026-02-30"', "published: 2026-02-30 "),
        ("title = ", "TOML"),
        ('title = "\x00"', "TOML"),
    ],
)
def test_what_is_invalid_is_named(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        request.read(written(tmp_path, text), {})
    assert expected in str(caught.value)
    assert "release.toml" in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none.toml: there is no such file; .*--template"):
        request.read(tmp_path / "none.toml", {})


@pytest.mark.parametrize(
    ("missing", "option"), [("title", "--title"), ("licence", "--licence-file"), ("creators", "--creator")]
)
def test_what_is_missing_is_requested_by_name(missing: str, option: str) -> None:
    stated = request.read(None, {name: value for name, value in OPTIONS.items() if name != missing})
    with pytest.raises(UsageError) as caught:
        request.complete(stated)
    assert f"no {missing}: " in str(caught.value)
    assert option in str(caught.value)
    questions: list[str] = []

    def ask(question: str) -> str:
        questions.append(question)
        return str(OPTIONS[missing][0] if missing == "creators" else OPTIONS[missing])

    assert request.about(request.complete(stated, ask), "1.0.0", "2020-01-01") == request.about(
        request.complete(request.read(None, OPTIONS)), "1.0.0", "2020-01-01"
    )
    assert len(questions) == 1


def test_a_licence_has_a_text(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"CC-BY-4: .*--licence-file FILE.*; did you mean CC-BY-4.0"):
        request.complete(request.read(None, OPTIONS | {"licence": "CC-BY-4"}))
    own = tmp_path / "own.txt"
    own.write_text("Do what you like.\n", encoding="utf-8")
    about = request.about(
        request.complete(request.read(None, OPTIONS | {"licence": None, "licence_file": own})), "1.0.0", ""
    )
    assert (about.licence, about.licence_text) == ("LicenseRef-of-this-release", "Do what you like.\n")
    own.write_text("\n", encoding="utf-8")
    with pytest.raises(UsageError, match="the licence is empty"):
        request.read(None, {"licence_file": own})


@pytest.mark.parametrize(
    ("given", "known"), [("cc-by-4.0", "CC-BY-4.0"), ("mit", "MIT"), ("odbl-1.0", "ODbL-1.0"), (" MIT\n", "MIT")]
)
def test_a_licence_is_known_in_any_case(given: str, known: str) -> None:
    assert request.complete(request.read(None, OPTIONS | {"licence": given}))["licence"] == known


def test_all_that_is_missing_is_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no title: .*--title.*; no licence: .*; no creators: .*--creator"):
        request.complete(request.read(None, {}))
    with pytest.raises(UsageError, match=r"^no licence: [^;]*; no creators: "):
        request.complete(request.read(None, {"title": "T"}), lambda question: "\t ")


@pytest.mark.parametrize("blank", ["", " ", "\t\n", "\u2003\x00", "\u200b"])
def test_blanks_are_no_statements(tmp_path: Path, blank: str) -> None:
    file = written(tmp_path, 'title = "of the file"\ndescription = "  "\ndoi = ""\nkeywords = [" ", "a"]\n')
    stated = request.read(file, {"title": blank, "creators": [blank], "licence": blank})
    assert stated == {"title": "of the file", "keywords": ["a"]}
    with pytest.raises(UsageError, match=r"^no licence: [^;]*; no creators: "):
        request.complete(stated)
    nameless = written(tmp_path, '[[creators]]\nname = " "\n')
    with pytest.raises(UsageError, match="creator 1 has no name"):
        request.read(nameless, {})


def test_texts_are_one_line_but_for_the_words_of_the_datasheet(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        'title = """A\n  title\\u0007"""\nkeywords = ["a\\r\\nb", "c"]\npublisher = "P\\u2028Q"\nfunding = ["x\\ty"]\n'
        'licence_text = "a\\n\\fb\\n"\ndescription = """\nOne\n\nTwo"""\n'
        'uses = """\n- one\n\t- two\\u0000\r\n\nend\n"""\n'
        '[[creators]]\nname = "Ada\\nLovelace"\n[[papers]]\ntitle = " A\\n# paper "\n',
    )
    assert request.read(file, {}) == {
        "title": "A title",
        "keywords": ["a b", "c"],
        "publisher": "P Q",
        "funding": ["x y"],
        "description": "One Two",
        "licence_text": "a\n\x0cb\n",
        "uses": "- one\n\t- two\n\nend",
        "creators": [{"name": "Ada Lovelace"}],
        "papers": [{"title": "A # paper"}],
    }
    assert request.read(None, {"creators": ["Ada\nLovelace <0000-0002-1825-0097>"]})["creators"] == [
        {"name": "Ada Lovelace", "orcid": "0000-0002-1825-0097"}
    ]


def test_addresses_of_identifiers_are_left_out(tmp_path: Path) -> None:
    text = 'doi = "https://doi.org/10.1/x"\n[[creators]]\nname = "Ada"\norcid = "https://orcid.org/0000-0002-1825-0097"'
    stated = request.read(written(tmp_path, text), {})
    assert stated["doi"] == "10.1/x"
    assert stated["creators"][0]["orcid"] == "0000-0002-1825-0097"


def test_the_date_is_that_of_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86399")
    assert request.today() == "1970-01-01"
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    assert request.today() == "1970-01-02"
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    with pytest.raises(UsageError, match="SOURCE_DATE_EPOCH=yesterday: not seconds"):
        request.today()


@pytest.mark.parametrize(
    "url",
    [
        "ftp://traces.net/a",
        "javascript:alert(1)",
        "https://traces.net/a b",
        "https://",
        "traces.net",
        "https://a/<b>",
    ],
)
@pytest.mark.parametrize("place", ['url = "{}"\n', '[[papers]]\ntitle = "P"\nurl = "{}"\n'])
def test_addresses_are_of_the_web(tmp_path: Path, url: str, place: str) -> None:
    with pytest.raises(UsageError, match=r"url: .* is not: .*begins with http:// or https://"):
        request.read(written(tmp_path, place.format(url)), OPTIONS)
    fine = request.read(written(tmp_path, place.format("https://traces.net/a%20b?c=d#e")), OPTIONS)
    assert "https://traces.net/a%20b?c=d#e" in str(fine)


def test_nothing_turns_the_direction_of_writing() -> None:
    turned = "a\u202eb\u2066c\u200f"
    options = {
        **OPTIONS,
        "title": turned,
        "creators": [turned],
        "keywords": [turned],
        "description": f"{turned}\n\u202ad",
    }
    about = request.about(request.complete(request.read(None, options)), "1.0.0", "2026-01-31")
    assert (about.title, about.creators[0].name, about.keywords) == ("abc", "abc", ("abc",))
    assert about.description == "abc d"
