"""Figures of the source, before and after: ``python -m tests.benchmarks.structure [COMMIT ...]``.

Computed from the source of each commit, and of the tree as it is.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from tests.fixtures.structure import MOST_FILES, Shape, shape_of

ROOT = Path(__file__).parents[2]
BEFORE = "9de26ce"
ROWS: tuple[tuple[str, Callable[[Shape], str]], ...] = (
    ("modules", lambda shape: str(shape.modules)),
    ("lines of a module: median, most", lambda shape: f"{shape.median_lines:g}, {shape.most_lines}"),
    (
        "modules that one other module imports, of them a folder's door",
        lambda shape: f"{shape.single_callers}, {shape.by_door}",
    ),
    (
        "names of files that occur more than once, files that have them",
        lambda shape: f"{len(shape.same_names)}, {sum(shape.same_names.values())}",
    ),
    (f"flat folders of more than {MOST_FILES} files", lambda shape: str(len(shape.flat_folders))),
    ("circles of imports between modules", lambda shape: str(shape.module_circles)),
    ("longest way of a trace down from the door", lambda shape: " → ".join(shape.way)),
    ("a way leads back to a room that was left", lambda shape: "yes" if shape.comes_back else "no"),
)


def shape_at(commit: str) -> Shape:
    """Return the figures of a commit's source."""
    packed = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True).stdout
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(folder, filter="data")
        command = [sys.executable, "-m", "tests.benchmarks.structure", "--of", folder]
        told = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    return msgspec.json.decode(told, type=Shape)


def main(arguments: list[str]) -> None:
    """Print one column a commit, and one for the tree as it is."""
    if arguments[:1] == ["--of"]:
        sys.path.insert(0, arguments[1])  # its packages, not ours
        sys.stdout.buffer.write(msgspec.json.encode(shape_of(Path(arguments[1]))))
        return
    commits = arguments or [BEFORE]
    shapes = {**{commit: shape_at(commit) for commit in commits}, "now": shape_of(ROOT)}
    print(f"| | {' | '.join(shapes)} |")
    print("| --- |" + " --- |" * len(shapes))
    for title, figure in ROWS:
        print(f"| {title} | {' | '.join(figure(shape) for shape in shapes.values())} |")


if __name__ == "__main__":
    main(sys.argv[1:])
