"""Commands, names and pictures on pages are those of the project."""

from __future__ import annotations

import importlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import click
import pytest

from osub.cli.main import root

PROJECT = Path(__file__).parents[3]
PAGES = [PROJECT / "README.md", *sorted((PROJECT / "docs").rglob("*.md"))]


# Placeholders on a page: `up|down`, `[--queues mq]`, `...`.
PLACEHOLDER = re.compile(r"\.\.\.|…|\[|\]|\||^[A-Z]+$")
INLINE = re.compile(r"(?<!`)`(osub [^`\n]+)`(?!`)")


def fenced(text: str) -> Iterator[tuple[int, str]]:
    """Return the lines in fences, with their numbers; a line that ends in a backslash goes on."""
    inside, begun = False, ""
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            inside, begun = not inside, ""
        elif inside:
            whole = begun + line.strip().removeprefix("$ ")
            begun = whole[:-1] if whole.endswith("\\") else ""
            if not begun:
                yield number, whole


def commands(text: str) -> Iterator[tuple[int, list[str]]]:
    """Return the words of each command of ``osub`` on a page."""
    shown = [(number, line) for number, line in fenced(text) if re.match(r"osub (?![a-z]+:)", line)]
    shown += [(text.count("\n", 0, found.start()) + 1, found[1]) for found in INLINE.finditer(text)]
    for number, line in shown:
        try:
            yield number, shlex.split(line, comments=True)
        except ValueError:
            continue


def complaint(words: list[str]) -> str | None:
    """Return what is wrong with a command, or ``None``."""
    command: click.Command = root
    rest = words[1:]
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        if PLACEHOLDER.search(rest[0]):
            return None
        try:
            _, inner, rest = command.resolve_command(click.Context(command), rest)
        except click.UsageError as error:
            return error.format_message()
        if inner is None:
            break
        command = inner
    if command.context_settings.get("ignore_unknown_options"):  # they are another program's
        return None
    known = {"--help", "-h", *(o for p in command.params for o in (*p.opts, *p.secondary_opts))}
    for word in rest:
        if word == "--":
            return None
        name = word.partition("=")[0]
        if re.fullmatch(r"--[a-z][a-z-]*", name) and name not in known:
            return f"{command.name} has no option {name}"
    return None if isinstance(command, click.Group) else too_many(command, rest)


def too_many(command: click.Command, words: list[str]) -> str | None:
    """Return which word of a command nothing takes, or ``None``; a sentence may name an option alone."""
    if any(PLACEHOLDER.search(word) for word in words):
        return None
    try:
        _, left, _ = command.make_parser(click.Context(command)).parse_args(list(words))
    except click.BadOptionUsage:
        return None
    return f"{command.name} takes no further word {left[0]}" if left else None


def test_the_pages_show_commands() -> None:
    assert sum(1 for page in PAGES for _ in commands(page.read_text(encoding="utf-8"))) > 100


@pytest.mark.parametrize("page", ["README.md", "docs/tutorials/first-verdict.md"])
def test_a_page_for_a_fresh_clone_says_first_where_the_command_is(page: str) -> None:
    text = (PROJECT / page).read_text(encoding="utf-8")
    shown = re.compile(r"```\w*\nosub ").search(text, text.index("\nscripts/demo"))
    assert shown is not None
    assert 0 < text.index(". .venv/bin/activate") < shown.start()


@pytest.mark.parametrize("words", ["osub replya x", "osub replay x --clustre c", "osub replay x y"])
def test_a_command_that_is_not_there_is_found(words: str) -> None:
    assert complaint(words.split()) is not None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_what_a_page_shows_is_there(page: Path) -> None:
    wrong = [
        f"{page.name}:{number}: {shlex.join(words)}: {why}"
        for number, words in commands(page.read_text(encoding="utf-8"))
        if (why := complaint(words)) is not None
    ]
    assert not wrong, "\n".join(wrong)


NAMED_PAGES = [
    PROJECT / "README.md",
    PROJECT / "CONTRIBUTING.md",
    *sorted(page for page in (PROJECT / "docs").rglob("*.md") if page.parent.name != "adr"),
]

ROOMS = "osub|simulator|submitter|deploy|predictor|workloads|gangd|analysis|foundation|tests|scripts"
FILE = re.compile(rf"(?<![\w/.-])((?:{ROOMS})/[\w./-]+\.(?:py|c|yaml|json|toml|lua|md|sh))")
TEST = re.compile(r"`[\w/]*\b(test_\w+\.py)`")
NAME = re.compile(rf"`((?:{ROOMS})(?:\.\w+)+)`")
NO_NAME = re.compile(r"\.(?:py|toml|md|service|so|json|yaml)$")


# Names in capitals are placeholders; the two are labels of containers.
PLACEHOLDER_PATH = re.compile(r"/[A-Z]+\.py$")
LABELS = {"osub.home", "osub.cluster"}
TESTS = {path.name for path in (PROJECT / "tests").rglob("test_*.py")}


def is_there(name: str) -> bool:
    """Whether a dotted name is a module, or leads to something in one."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            found = getattr(found, part, None)
        return found is not None
    return False


def missing(text: str) -> list[str]:
    """Return what a page names that is not there."""
    files = [one for one in FILE.findall(text) if not PLACEHOLDER_PATH.search(one)]
    names = [one for one in NAME.findall(text) if not NO_NAME.search(one) and one not in LABELS]
    return sorted(
        {one for one in files if not (PROJECT / one).exists()}
        | {one for one in TEST.findall(text) if one not in TESTS}
        | {one for one in names if not is_there(one)}
    )


@pytest.mark.parametrize(
    "text", ["`gangd/agent/node.py`", "`tests/x/test_none.py`", "`test_none.py`", "`gangd.core.nothing`"]
)
def test_what_is_not_there_is_found(text: str) -> None:
    assert missing(text)


@pytest.mark.parametrize("page", NAMED_PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_what_a_page_names_is_there(page: Path) -> None:
    assert not missing(page.read_text(encoding="utf-8"))


DOCS = Path(__file__).parents[3] / "docs"
PICTURES = sorted((DOCS / "pictures").glob("*.svg"))
SVG = "{http://www.w3.org/2000/svg}"
GREY = "#6b7280"
SHOWN = re.compile(r"!\[([^\]]*)\]\(([^)]*pictures/[^)]+)\)")


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
def test_a_picture_says_what_it_shows(picture: Path) -> None:
    root = ElementTree.parse(picture).getroot()
    named = {
        one.get("id"): one.text
        for one in (root.find(f"{SVG}title"), root.find(f"{SVG}desc"))
        if one is not None
    }
    assert root.get("role") == "img"
    assert all(named.get(word) for word in str(root.get("aria-labelledby")).split())


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
def test_grey_words_and_lines_are_light_on_a_dark_page(picture: Path) -> None:
    text = picture.read_text(encoding="utf-8")
    dark = re.search(r"@media \(prefers-color-scheme: dark\) \{(.*)\}</style>", text)
    for kind in ("fill", "stroke"):
        if f'{kind}="{GREY}"' in text:
            assert dark is not None
            assert f'[{kind}="{GREY}"]' in dark[1]


def test_every_picture_is_shown_with_words() -> None:
    shown = {
        (page.parent / where).resolve(): words
        for page in DOCS.rglob("*.md")
        for words, where in SHOWN.findall(page.read_text(encoding="utf-8"))
    }
    assert set(PICTURES) <= set(shown)
    assert all(len(words) > 20 for words in shown.values())
