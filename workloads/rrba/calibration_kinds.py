"""The kinds of rrba jobs that need a calibration of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foundation.errors import UsageError
from foundation.units import counted, verb
from workloads.rrba.cuts import PointGrid
from workloads.rrba.rrba_options import parse_options
from workloads.rrba.solvers.applications import application_named


@dataclass(frozen=True, slots=True, order=True)
class CalibrationKind:
    """An application on a grid, ranks and nodes; all jobs of a kind share step time and overhead.

    ``npb`` are the words that choose a stock benchmark instead of our solver, and ``calibrated_as`` the name
    under which the kind is stored.
    """

    app: str
    grid: PointGrid
    ranks: int
    nodes: int
    npb: tuple[str, ...] = ()
    calibrated_as: str = ""

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments of rrba, but for the length."""
        return ("--app", self.app, *(self.npb or ("--grid", str(self.grid))))

    @property
    def name(self) -> str:
        """The application with its class where the grid has one: ``lu.A``; or with its grid."""
        classes = application_named(self.app).classes
        named = next((name for name, grid in classes.items() if grid == self.grid), None)
        return f"{'npb ' if self.npb else ''}{self.app}.{named or self.grid}"


def kind_of(arguments: Sequence[str], ranks: int, nodes: int) -> CalibrationKind:
    """Return the kind of a job with rrba's ``arguments``.

    Raises
    ------
    UsageError
        rrba would refuse them on so many ranks.
    """
    options = parse_options(_with_calibration(arguments))
    grid = options.grid or options.application.usual_grid(ranks)
    if options.npb is None or not options.npb.omp:
        options.application.check(grid, ranks)
    name = options.application.name
    if (npb := options.npb) is None:
        return CalibrationKind(name, grid, ranks, nodes, calibrated_as=name)
    words = ["--npb", str(npb.folder.resolve()), "--class", npb.grid_class]
    words += ["--npb-omp"] * npb.omp + ["--omp-wait-passive"] * npb.passive
    return CalibrationKind(name, grid, ranks, nodes, tuple(words), npb.calibrated_as(name))


def _with_calibration(arguments: Sequence[str]) -> list[str]:
    """Return the arguments as a replay with a calibration passes them."""
    has_target = any(word.startswith("--target-s") for word in arguments)
    has_file = any(word.startswith("--calibration") for word in arguments)
    return [*arguments, *(["--calibration", "any"] if has_target and not has_file else [])]


def target_of(arguments: Sequence[str]) -> float | None:
    """Return the target of rrba's ``arguments``, None where they give a number of steps."""
    for place, word in enumerate(arguments):
        if word == "--target-s" or word.startswith("--target-s="):
            text = word.partition("=")[2] or "".join(arguments[place + 1 : place + 2])
            return parse_options(["--app", "jacobi", "--target-s", text]).target_s
    return None


def kind_from_words(
    app: str, grid_class: str | None, ranks: int, nodes: int, npb: Sequence[str] = ()
) -> CalibrationKind:
    """Return the kind that a command line names; ``npb`` as on rrba's.

    Raises
    ------
    UsageError
        There is no such application or class, or the ranks are not legal or not equal on all nodes.
    """
    if ranks % nodes:
        raise UsageError(
            f"{counted(ranks, 'rank')} {verb(ranks, 'does', 'do')} not divide among "
            f"{counted(nodes, 'node')}; choose another --ranks"
        )
    words = ["--app", app, "--steps", "1", *(["--class", grid_class] if grid_class else []), *npb]
    return kind_of(words, ranks, nodes)
