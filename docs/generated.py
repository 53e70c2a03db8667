"""Pages made of the sources when the site is built: commands, Python interface, decisions (mkdocs hooks)."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

ABOUT_COMMANDS = """# Commands

Each command's own help, as `--help` prints it; last the policies of `osub simulate`.
Exit codes: 2 for usage, 1 for any other error.
"""
CELL = re.compile(r"<td[^>]*>.*?</td>", re.DOTALL)
ABOUT_PYTHON = "# Python\n\nThe names in `osub.__all__`. [From Python](../python.md) shows them at work.\n"


def commands(command: click.Command, path: str) -> Iterator[tuple[str, str]]:
    """Return each command that does something, with its help."""
    context = click.Context(command, info_name=path, max_content_width=100, terminal_width=100)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None and not inner.hidden:
                yield from commands(inner, f"{path} {name}")
    else:
        yield path, command.get_help(context)


def commands_page() -> str:
    """Return the page of the command line."""
    from osub.cli.main import root
    from simulator.policy_registry import listing

    texts = [*commands(root, "osub"), ("osub simulate --policies", listing())]
    return ABOUT_COMMANDS + "".join(f"\n## {path}\n\n```text\n{text.rstrip()}\n```\n" for path, text in texts)


def members(thing: type) -> Iterator[tuple[str, Any]]:
    """Return the public methods and properties of a class, as written."""
    for name, member in vars(thing).items():
        if not name.startswith("_") and (callable(member) or isinstance(member, property)):
            yield name, member.fget if isinstance(member, property) else member


def entry(name: str, thing: Any, level: int) -> str:
    """Return what a page says of a class, function or property."""
    sign = str(inspect.signature(thing)) if inspect.isroutine(thing) else ""
    text = inspect.getdoc(thing) or ""
    return f"\n{'#' * level} {name}\n\n```text\n{name}{sign}\n\n{text}\n```\n"


def python_page() -> str:
    """Return the page of the Python interface."""
    import osub

    page = ABOUT_PYTHON
    for name in osub.__all__:
        thing = getattr(osub, name)
        page += entry(f"osub.{name}", thing, 2)
        if inspect.isclass(thing):
            page += "".join(entry(f"{name}.{inner}", member, 3) for inner, member in members(thing))
    return page


def decisions_page(folder: Path) -> str:
    """Return the page that lists the architecture decision records in ``folder``."""
    lines = [
        f"* [{page.read_text(encoding='utf-8').partition(chr(10))[0].lstrip('# ')}]({page.name})"
        for page in sorted(folder.glob("0*.md"))
    ]
    return "# Decisions\n\nWhat was decided, why, and what was tried.\n\n" + "\n".join(lines) + "\n"


def on_files(files: Any, config: Any) -> Any:
    """Add the pages (called by mkdocs)."""
    from mkdocs.structure.files import File

    made = {
        "reference/commands.md": commands_page(),
        "reference/python.md": python_page(),
        "adr/index.md": decisions_page(Path(config["docs_dir"]) / "adr"),
    }
    for where, text in made.items():
        files.append(File.generated(config, where, content=text))
    return files


def on_page_content(html: str, **_: Any) -> str:
    """Return a page whose tables show ``|`` where Markdown has to escape it in code (called by mkdocs)."""
    return CELL.sub(lambda cell: cell[0].replace(r"\|", "|"), html)
