"""A command parses, calls and prints: what else it needs is a function of the package that owns the subject.

What a module of ``osub.cli`` may have: commands, readers of options, and output for people or programs. A
function is classified by what it mentions; the few that are none of these, since only a command has a
terminal and its signals, are listed with the reason.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import osub.cli

FOLDER = Path(osub.cli.__file__).parent
TELLS = {
    "Console", "Group", "Live", "Progress", "RenderableType", "Table", "Text",
    "console", "echo", "echo_json", "json", "msgspec", "note", "print", "progress", "progress_bar", "say",
    "typer",
}  # fmt: skip
REFUSES = {"HostError", "InputError", "OutputError", "UsageError"}
WORDS = ("str", "list[str]", "dict[str,", "tuple[str,", "Text", "Table")
COMPUTES = {
    "csv", "hashlib", "numba", "numpy", "polars", "psutil", "random", "scipy", "sklearn", "socket",
    "statistics", "subprocess",
}  # fmt: skip
OPENS = {"open", "read_bytes", "read_text", "write_bytes", "write_text"}
RECORDS = ("dataclass", "Struct", "NamedTuple", "TypedDict")

ALONE = {
    "queue_of": "an option's -1 as None",
    "refuse_nan": "what options take",
    "root": "the group itself",
    "main": "the program",
    "deliver": "writes with a spinner",
    "interruption_says": "signals of a terminal",
    "waiting": "a line on a terminal",
    "working": "a spinner",
    "_ask": "a question at a terminal",
    "_typed": "the type of an option",
    "_called": "the program",
    "answer_shells": "what a shell completes",
    "_drop": "the standard output",
    "_drop_unread_output": "the standard output",
    "_follow": "a replay with its bar",
    "_watch": "a replay with its bar",
    "_command": "makes commands of one shape",
    "_quiet_keys": "the keyboard",
    "_asked_to_leave": "the keyboard",
    "_split": "lines of a screen",
    "_fitting": "lines of a screen",
    "_plain": "a number without a point",
}
DRAWN = {"TopColumn": "a column of a table", "Screen": "the size of a terminal"}
MOST_STATEMENTS = 32


def modules() -> list[Path]:
    return sorted(FOLDER.rglob("*.py"))


def called(path: Path) -> str:
    return str(path.relative_to(FOLDER))


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """Yield the functions of a module that are not inside of others or of classes."""
    yield from (node for node in tree.body if isinstance(node, ast.FunctionDef))


def is_command(function: ast.FunctionDef) -> bool:
    """Whether parameters are described for the command line, or a decorator makes it a command."""
    arguments = [*function.args.args, *function.args.kwonlyargs]
    described = any(
        one.annotation is not None and names_in(one.annotation) & {"Argument", "Option"} for one in arguments
    )
    return described or any(
        word in ast.unparse(one) for one in function.decorator_list for word in ("command(", "callback(")
    )


def names_in(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def statements(function: ast.FunctionDef) -> int:
    return sum(isinstance(node, ast.stmt) for node in ast.walk(function)) - 1


@pytest.mark.parametrize("path", modules(), ids=called)
def test_every_function_parses_or_reports(path: Path) -> None:
    for function in functions(ast.parse(path.read_text(encoding="utf-8"))):
        made = ast.unparse(function.returns) if function.returns else ""
        fine = (
            is_command(function)
            or names_in(function) & (TELLS | REFUSES)
            or made.startswith(WORDS)
            or function.name in ALONE
        )
        assert fine, f"{called(path)}: {function.name} neither parses nor tells: whose is it?"


@pytest.mark.parametrize("path", modules(), ids=called)
def test_no_module_has_records_of_its_own(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for one in (node for node in tree.body if isinstance(node, ast.ClassDef)):
        made = " ".join(map(ast.unparse, (*one.decorator_list, *one.bases)))
        assert one.name in DRAWN or not any(word in made for word in RECORDS), f"{called(path)}: {one.name}"


@pytest.mark.parametrize("path", modules(), ids=called)
def test_no_module_computes_or_opens_files(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imported: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {name.name.partition(".")[0] for name in node.names}
        if isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").partition(".")[0])
        if isinstance(node, ast.Call):
            word = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            word = node.func.id if isinstance(node.func, ast.Name) else word
            # `os.open` of the null device is what a broken pipe is led to.
            assert word not in OPENS or path.name == "main.py", f"{called(path)}: {word}()"
    assert not imported & COMPUTES, f"{called(path)} imports {', '.join(imported & COMPUTES)}"


@pytest.mark.parametrize("path", modules(), ids=called)
def test_no_command_is_long(path: Path) -> None:
    for function in functions(ast.parse(path.read_text(encoding="utf-8"))):
        count = statements(function)
        assert count <= MOST_STATEMENTS, f"{called(path)}: {function.name} has {count} statements"


def test_exceptions_are_there() -> None:
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in modules()]
    known = {function.name for tree in trees for function in functions(tree)}
    assert set(ALONE) <= known


def test_the_rule_finds_what_it_is_for() -> None:
    logic, reported = (
        ast.parse("def rows(jobs: Jobs) -> list[Row]:\n    return sorted(jobs)"),
        "def f(): print(1)",
    )
    assert not names_in(logic) & (TELLS | REFUSES)
    assert names_in(ast.parse(reported)) & TELLS


HEAVY = (
    "dask", "msgspec", "numba", "numpy", "optuna", "pandas", "plotly", "polars", "prometheus_client",
    "psutil", "scipy", "sklearn", "statsmodels", "zmq",
)  # fmt: skip


def imported_by(program: str) -> set[str]:
    """Return which modules a fresh interpreter has after a program."""
    output = subprocess.run(
        [sys.executable, "-c", f"{program}\nimport sys; print(*sys.modules, sep='\\n', file=sys.stderr)"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return set(output.stderr.split())


@pytest.mark.parametrize(
    "program",
    [
        "import osub",
        "from osub.cli.main import run; run(['--help'])",
        "from osub.cli.main import run; run(['--version'])",
        "from osub.cli.main import run; run(['no-such-command'])",
        "import osub.command",
    ],
)
def test_nothing_heavy_is_imported(program: str) -> None:
    got = imported_by(program)
    assert "osub" in got
    assert not got & set(HEAVY)


def test_the_first_use_of_a_name_imports_what_it_needs() -> None:
    assert "osub.api" in imported_by("import osub; osub.load")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "spared"),
    [
        ("trace", {"numba", "plotly", "zmq", "sklearn"}),
        ("cluster", {"numba", "plotly", "polars", "zmq", "sklearn"}),
        ("gang", {"numba", "plotly", "polars", "sklearn"}),
        ("simulate", {"numba", "plotly", "sklearn"}),
        ("compare", {"numba", "plotly", "zmq", "sklearn"}),
        ("report", {"numba", "plotly", "zmq", "sklearn"}),
        ("runs", {"numba", "plotly", "zmq", "sklearn"}),
    ],
)
def test_help_of_a_command_imports_no_more_than_the_command_needs(command: str, spared: set[str]) -> None:
    assert not imported_by(f"from osub.cli.main import run; run([{command!r}, '--help'])") & spared
