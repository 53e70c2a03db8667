"""What NPB 3.4's LU, BT, SP and MG read and print: input files that set an iteration count, and results.

A benchmark that finds its file in the working directory reads it instead of its compiled-in defaults. All
other values written here are those defaults, by class. Source: the files ``*.data.sample`` and
``mg.input.sample`` of NPB 3.4, and the tables of NAS-95-020 and NPB 3.4 for the values.

A changed iteration count makes NPB print ``UNSUCCESSFUL`` and exit with code 0, since it compares with a
reference of the usual count. So that word says nothing here: a run is judged by whether it completed, by the
time that it reports, and by whether it made the iterations that were asked for. All of this is pure text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from foundation.errors import UsageError
from workloads.rrba.cuts.slabs import Grid
from workloads.rrba.solvers.problem_classes import BT_CLASSES, LU_CLASSES, MG_CLASSES, SP_CLASSES

_GRIDS = {"lu": LU_CLASSES, "bt": BT_CLASSES, "sp": SP_CLASSES, "mg": MG_CLASSES}
_TIME_STEPS = {
    "bt": {"S": "0.010", "W": "0.0008", "A": "0.0008", "B": "0.0003", "C": "0.0001"},
    "sp": {"S": "0.015", "W": "0.0015", "A": "0.0015", "B": "0.001", "C": "0.00067"},
    "lu": {"S": "0.5", "W": "1.5e-3", "A": "2.0", "B": "2.0", "C": "2.0"},
}
_RELAXATION = "1.2"
_TOLERANCE = "1.0e-08"


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file for the benchmark's working directory."""

    name: str
    text: str


def benchmark_grid(name: str, grid_class: str) -> Grid:
    """Return the grid of a class.

    Raises
    ------
    UsageError
        The benchmark takes no iteration count from a file, or has no such class here.
    """
    if name not in _GRIDS:
        raise UsageError(f"--npb runs {', '.join(_GRIDS)}, not {name!r}")
    if grid_class not in _GRIDS[name]:
        raise UsageError(f"--class is {grid_class!r}; {name} has {', '.join(_GRIDS[name])}")
    return _GRIDS[name][grid_class]


def input_file(name: str, grid_class: str, iterations: int) -> InputFile:
    """Return the input file with which a benchmark makes ``iterations``.

    Raises
    ------
    UsageError
        As ``benchmark_grid``.
    """
    grid = benchmark_grid(name, grid_class)
    edges = f"{grid.planes} {grid.rows} {grid.columns}"
    if name == "mg":
        levels = grid.planes.bit_length() - 1
        lines = [str(levels), edges, str(iterations), "0 0 0 0 0 0 0 0"]
        return InputFile("mg.input", _text(lines))
    step = _TIME_STEPS[name][grid_class]
    if name == "lu":
        # Each value stands on the third line of three; the two before are for the reader.
        groups = [
            ("printing: every so many iterations, and the norm's", f"1 {iterations}"),
            ("iterations", str(iterations)),
            ("time step", step),
            ("relaxation", _RELAXATION),
            ("tolerances of the five residuals", " ".join([_TOLERANCE] * 5)),
            ("grid", edges),
        ]
        return InputFile(
            "inputlu.data", _text([line for title, v in groups for line in ("#", f"# {title}", v)])
        )
    return InputFile(f"input{name}.data", _text([str(iterations), step, edges]))


def _text(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class Result:
    """The benchmark's own account: seconds of its timed loop, and iterations."""

    time_s: float
    iterations: int


def read_result(output: str, iterations: int) -> Result | str:
    """Return the account, or in a sentence why there is none or a wrong one.

    Parameters
    ----------
    output
        All that the benchmark printed.
    iterations
        What its input file asked for.
    """
    if not re.search(r"Benchmark Completed", output, re.IGNORECASE):
        last = next((line.strip() for line in reversed(output.splitlines()) if line.strip()), "nothing")
        return f"the benchmark did not complete; it printed last: {last}"
    time_s = re.search(r"Time in seconds\s*=\s*([0-9.]+(?:[eE][+-]?[0-9]+)?)", output)
    made = re.search(r"^\s*Iterations\s*=\s*([0-9]+)", output, re.MULTILINE)
    if time_s is None or made is None:
        return "the benchmark completed but printed no time, or no iterations"
    if int(made[1]) != iterations:
        return (
            f"the benchmark made {made[1]} iterations, not {iterations}: it did not read its input file; "
            "is it NPB 3.4 of this class?"
        )
    return Result(float(time_s[1]), int(made[1]))
