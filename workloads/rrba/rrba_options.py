"""The command line of ``rrba``, read before anything heavy is loaded."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from foundation.errors import UsageError
from workloads.rrba.cuts import PointGrid, parse_grid
from workloads.rrba.solvers.applications import APPLICATIONS, SolverApplication, application_named
from workloads.task.slurm_task import LineParser, seconds_option, whole_option

STEP_LIMIT = 10**12


@dataclass(frozen=True, slots=True)
class NpbChoice:
    """A stock benchmark in the place of our own solver.

    Attributes
    ----------
    folder
        NPB's, with the binaries.
    grid_class
        As compiled into the binary.
    omp
        Whether the binaries are OpenMP's, not MPI's.
    passive
        Whether OpenMP threads that wait sleep (``OMP_WAIT_POLICY=passive``).
    """

    folder: Path
    grid_class: str
    omp: bool = False
    passive: bool = False

    def calibrated_as(self, app: str) -> str:
        """Return the application's name in calibrations: its pace is not our solver's."""
        return f"npb-{'omp-' if self.omp else ''}{app}{'-passive' if self.passive else ''}"


@dataclass(frozen=True, slots=True)
class RrbaOptions:
    """What the user asked for; exactly one of ``target_s``, ``steps`` and ``calibrate_s`` is set.

    ``grid`` None means the default for the number of ranks; ``npb`` None our own solver.
    """

    application: SolverApplication
    target_s: float | None
    steps: int | None
    calibrate_s: float | None
    grid: PointGrid | None
    calibration: Path | None
    report: Path | None
    npb: NpbChoice | None = None


def parse_options(arguments: Sequence[str]) -> RrbaOptions:
    """Read the command line.

    Raises
    ------
    UsageError
        It cannot be carried out as given.
    """
    apps = "; ".join(f"{app.name} ({app.summary})" for app in APPLICATIONS.values())
    parser = LineParser(
        prog="rrba",
        allow_abbrev=False,
        description="Compute coupled time steps on MPI ranks: as many as take a given run time "
        "on dedicated cores.",
    )
    parser.add_argument("--app", metavar="NAME", required=True, help=f"what to compute: {apps}")
    length = parser.add_mutually_exclusive_group(required=True)
    length.add_argument("--target-s", metavar="T", help="run time to reproduce, in seconds")
    length.add_argument(
        "--steps", "--itr", dest="steps", metavar="K", help="number of steps, the outermost loop's length"
    )
    length.add_argument("--calibrate-s", metavar="S", help="step for S seconds and store what a step takes")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--grid", metavar="G", help="the job's grid: an edge, or 128x64x64")
    size.add_argument(
        "--class",
        dest="grid_class",
        metavar="C",
        help="the job's grid by NPB class: S, W, A, B or C (default: W; S for mg; jacobi has none)",
    )
    parser.add_argument(
        "--calibration",
        metavar="FILE",
        type=Path,
        help="stored step times: read, or with --calibrate-s written",
    )
    parser.add_argument(
        "--npb",
        metavar="DIR",
        type=Path,
        help="run the stock NPB 3.4 binary of --app and --class in this folder",
    )
    parser.add_argument("--npb-omp", action="store_true", help="the binaries are OpenMP's, not MPI's")
    parser.add_argument(
        "--omp-wait-passive",
        action="store_true",
        help="OpenMP threads sleep while they wait (default: they spin)",
    )
    parser.add_argument("--report", metavar="FILE", type=Path, help="also write the report here")
    return _checked(parser.parse_args(list(arguments)))


def _checked(words: argparse.Namespace) -> RrbaOptions:
    if words.calibrate_s is not None and words.calibration is None:
        raise UsageError("--calibrate-s needs --calibration FILE to store in")
    if words.steps is not None and words.calibration is not None:
        raise UsageError("--steps needs no --calibration; give one of them")
    application = application_named(words.app)
    npb = _npb(words)
    return RrbaOptions(
        application=application,
        target_s=_seconds("--target-s", words.target_s),
        steps=whole_option("--steps", words.steps, STEP_LIMIT),
        calibrate_s=_seconds("--calibrate-s", words.calibrate_s),
        grid=_grid(application, words.grid, words.grid_class),
        calibration=words.calibration,
        report=words.report,
        npb=npb,
    )


def _npb(words: argparse.Namespace) -> NpbChoice | None:
    if words.npb is None:
        if words.npb_omp or words.omp_wait_passive:
            raise UsageError("--npb-omp and --omp-wait-passive are for --npb DIR")
        return None
    if words.grid_class is None or words.calibrate_s is not None:
        raise UsageError(
            "--npb needs --class, and --itr or --target-s; `osub workloads calibrate` calibrates"
        )
    if words.target_s is not None and words.calibration is None:
        raise UsageError(
            "--npb with --target-s needs --calibration: a stock binary cannot measure itself first"
        )
    if words.omp_wait_passive and not words.npb_omp:
        raise UsageError("--omp-wait-passive is for --npb-omp")
    return NpbChoice(words.npb, words.grid_class, words.npb_omp, words.omp_wait_passive)


def _grid(application: SolverApplication, edges: str | None, grid_class: str | None) -> PointGrid | None:
    if grid_class is None:
        return None if edges is None else parse_grid(edges)
    if grid_class not in application.classes:
        known = ", ".join(application.classes) or "none; give --grid"
        raise UsageError(f"--class is {grid_class!r}; {application.name} has {known}")
    return application.classes[grid_class]


def _seconds(name: str, text: str | None) -> float | None:
    return None if text is None else seconds_option(name, text)
