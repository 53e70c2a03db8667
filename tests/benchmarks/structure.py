"""Figures of the source, before and after: ``python -m tests.benchmarks.structure [COMMIT ...]``.

Computed from the source of each commit, and of the tree as it is.
"""

from __future__ import annotations

import ast
import io
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
import tokenize
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from types import FrameType

from tests.fixtures.structure import circles, imports_of, packages_of, siblings

ROOT = Path(__file__).parents[2]
BEFORE = "e1e87d17"
NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENDMARKER,
}  # fmt: skip
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
APART = {"adr", "lab", "lab-notebook", "measured"}
"""Folders of docs that are no user's: decisions, and tables of measurements."""
TRACE = "".join(f"{n} {n * 10} -1 60 {1 + n % 4} -1 -1 4 90 -1 1 1 1 -1 1 1 -1 -1\n" for n in range(1, 21))


def lines_of_code(source: str) -> int:
    """Count lines without blank ones, comments and docstrings."""
    docstrings = set[int]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            docstrings.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    lines = set[int]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstrings)


def calls_to_the_event_loop(root: Path, packages: tuple[str, ...]) -> str:
    """Return our calls that are open when ``osub simulate`` enters its event loop; how many only forward."""
    from osub.cli.main import main as command

    folders = tuple(f"{root / package}{os.sep}" for package in packages)
    found: list[tuple[str, int]] = []

    def look(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_name == "run_events" and not found:
            at: FrameType | None = frame
            while at is not None:
                if at.f_code.co_filename.startswith(folders):
                    found.append((at.f_code.co_filename, at.f_code.co_firstlineno))
                at = at.f_back

    with tempfile.TemporaryDirectory() as folder:
        (trace := Path(folder, "jobs.swf")).write_text(f"; MaxProcs: 8\n{TRACE}", encoding="utf-8")
        sys.argv = ["osub", "simulate", str(trace), "--system", "N2C4", "--out", str(Path(folder, "run"))]
        sys.setprofile(look)
        try:
            command()
        except SystemExit as ended:
            if ended.code:
                raise
        finally:
            sys.setprofile(None)
    return f"{len(found)}; {sum(_only_forwards(Path(name), line) for name, line in found)}"


def _only_forwards(path: Path, line: int) -> bool:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and line in {
            node.lineno,
            *(one.lineno for one in node.decorator_list),
        }:
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            return (
                len(body) == 1
                and isinstance(body[0], ast.Return | ast.Expr)
                and isinstance(body[0].value, ast.Call)
            )
    return False


def figures_of(root: Path) -> Mapping[str, str]:
    """Compute the figures of the tree that is imported from ``root``."""
    packages = packages_of(root)
    edges = imports_of(packages)
    sources = [
        path.read_text(encoding="utf-8") for package in packages for path in (root / package).rglob("*.py")
    ]
    classes = Counter(
        node.name
        for source in sources
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ClassDef)
    )
    importers: defaultdict[str, set[str]] = defaultdict(set)
    for name, imported in edges.items():
        for other in imported:
            importers[other].add(name)
    docs = [
        path
        for path in [root / "README.md", *(root / "docs").rglob("*.md")]
        if not APART & set(path.relative_to(root).parts)
    ]
    tests = [path.read_text(encoding="utf-8") for path in (root / "tests").rglob("*.py")]
    median = statistics.median(source.count("\n") for source in sources)
    return {
        "lines of code outside of tests": f"{sum(map(lines_of_code, sources)):,}",
        "modules; median lines": f"{len(sources)}; {median:g}",
        "modules with one importer": str(sum(len(found) == 1 for found in importers.values())),
        "class names defined more than once": str(sum(count > 1 for count in classes.values())),
        "circles of imports: of modules; of siblings in a folder": (
            f"{circles(edges)}; {sum(circles(inside) for _, inside in siblings(edges))}"
        ),
        "calls from `osub simulate` to the event loop; of them forwarding only": calls_to_the_event_loop(
            root, packages
        ),
        "words of user docs": f"{sum(len(path.read_text(encoding='utf-8').split()) for path in docs):,}",
        "lines of tests; of code": (
            f"{sum(source.count(chr(10)) for source in tests):,}; {sum(map(lines_of_code, tests)):,}"
        ),
    }


def print_figures(root: Path) -> None:
    """Print a line for each figure: its name, a tab, its value."""
    for title, value in figures_of(root).items():
        print(f"{title}\t{value}")


RUN = """
import importlib.util, pathlib, sys
def load(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
ours, root = sys.argv[1:]
load("tests.fixtures.structure", f"{ours}/tests/fixtures/structure.py")
load("tests.benchmarks.structure", f"{ours}/tests/benchmarks/structure.py").print_figures(pathlib.Path(root))
"""


def figures_by_command(root: Path) -> dict[str, str]:
    """Compute the figures in an interpreter that imports the packages of ``root``."""
    command = [sys.executable, "-c", RUN, str(ROOT), str(root)]
    environment = {**os.environ, "PYTHONPATH": str(root), "OSUB_JIT": "0"}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=True)
    return dict(line.split("\t") for line in done.stdout.splitlines() if "\t" in line)


def main(commits: list[str]) -> None:
    """Print one column a commit, and one for the tree as it is."""
    from foundation.files import unpack  # not above: an older tree is measured with this module, too

    columns: dict[str, dict[str, str]] = {}
    for commit in commits or [BEFORE]:
        packed = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True).stdout
        with tempfile.TemporaryDirectory() as folder:
            with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
                unpack(archive, Path(folder))
            columns[commit] = figures_by_command(Path(folder).resolve())
    columns["now"] = figures_by_command(ROOT)
    print(f"| | {' | '.join(columns)} |")
    print("| --- |" + " --- |" * len(columns))
    for title in columns["now"]:
        print(f"| {title} | {' | '.join(column[title] for column in columns.values())} |")


if __name__ == "__main__":
    main(sys.argv[1:])
