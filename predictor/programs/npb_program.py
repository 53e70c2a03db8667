"""A stock NAS Parallel Benchmark that reports its steps by a meter, though it is unchanged.

``npb FOLDER NAME CLASS STEPS``. LU, BT, SP and MG of NPB 3.4 take their iteration count from an input file
(``workloads.rrba.npb``) and print a line every 20 time steps, MG every 5 iterations. Such a line is a
step here. They print to a terminal, for only then does no runtime library keep lines back.
"""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from foundation.errors import HostError, OsubError, UsageError
from foundation.one_line import one_line
from predictor.programs.dies_with_parent import with_parent
from workloads.rrba.npb import find_binary, input_file
from workloads.task.step_meter import Meter

ITERATIONS = {"lu": 20, "bt": 20, "sp": 20, "mg": 5}
"""From one line to the next."""

_MOST_ITERATIONS = 2_000_000_000
_LINE = re.compile(rb"\s*(?:Time step|iter)\s")
_FIRST_LINES = 2
"""The first line is of iteration 1; the second ends a step that is shorter than the others."""


def main() -> int:
    """Run until the steps are made; return the exit code."""
    words = sys.argv[1:]
    try:
        if len(words) != 4 or not (words[3].isascii() and words[3].isdigit()):
            raise UsageError("npb: FOLDER NAME CLASS STEPS, the last a whole number")
        run(Path(words[0]), words[1], words[2], int(words[3]))
    except OsubError as error:
        print(f"npb: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def run(folder: Path, name: str, grid_class: str, steps: int) -> None:
    """Run a benchmark for so many steps, and tell each.

    Raises
    ------
    OsubError
        It is not there, fails, or prints no steps.
    """
    binary = find_binary(folder, name, grid_class)
    file = input_file(name, grid_class, min(_MOST_ITERATIONS, ITERATIONS[name] * (steps + _FIRST_LINES - 1)))
    with tempfile.TemporaryDirectory(prefix="npb-") as scratch:
        Path(scratch, file.name).write_text(file.text, encoding="ascii")
        ours, its = pty.openpty()
        try:
            child = subprocess.Popen(
                [*with_parent(), str(binary)],
                cwd=scratch,
                env={**os.environ, "OMP_NUM_THREADS": "1", "GFORTRAN_UNBUFFERED_PRECONNECTED": "1"},
                stdin=subprocess.DEVNULL,
                stdout=its,
            )
        except OSError as error:
            raise HostError(f"cannot run {binary}: {error.strerror}") from error
        finally:
            os.close(its)
        lines_seen, last = 0, b""
        meter: Meter | None = None
        for line in _lines(ours):
            last = line if line.strip() else last
            if not _LINE.match(line):
                continue
            lines_seen += 1
            if lines_seen == _FIRST_LINES:
                meter = Meter.of(os.environ)
            elif lines_seen > _FIRST_LINES and meter is not None:
                meter.step()
        code = child.wait()
    said = one_line(last.decode("ascii", "replace").strip()) or "nothing"
    if code:
        raise HostError(f"{binary.name} ended with code {code}; it printed last: {said}")
    if lines_seen < _FIRST_LINES:
        raise HostError(f"{binary.name} tells no time steps; it printed last: {said}")


def _lines(terminal: int) -> Iterator[bytes]:
    """Yield what is printed to a terminal, line by line, and close our end of it at the end."""
    rest = b""
    try:
        while True:
            try:
                chunk = os.read(terminal, 4096)
            except OSError:  # EIO: the other end is closed
                chunk = b""
            if not chunk:
                break
            *whole, rest = (rest + chunk).split(b"\n")
            yield from whole
            rest = rest[-4096:]
    finally:
        os.close(terminal)
    if rest:
        yield rest


if __name__ == "__main__":
    sys.exit(main())
