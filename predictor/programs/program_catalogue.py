"""The applications by name: solvers, kernels that stress what solvers don't, mimics that sleep, stressors.

A solver's class is an application of its own, as in Minami's thesis (4.2.1); ``lu.S`` and ``lu.W`` are one
family, as are a kernel's sizes. A mimic is a kernel that sleeps for a random time after every few steps,
which is the thesis's interactive job. A stressor mixes one kernel with an integer loop by shares of CPU time
(Bubble-Up, Mars et al., MICRO 2011: pressure is a dial).
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from foundation.errors import HostError, InputError, UsageError
from foundation.one_line import one_line
from foundation.trust import usable_cache
from predictor.dataset import NAME, STRESSOR
from predictor.programs.npb_program import ITERATIONS
from workloads.rrba.npb import find_binary

ENDLESS_STEPS = 10**12
NPB_CLASSES = ("S", "W", "A", "B", "C")
_SLEEP_US = 8_000
"""Mean of a mimic's sleep; it computes about as long in between."""

SOURCE = Path(__file__).with_name("kernels.c")
FLAGS = ("-O3", "-std=gnu11")


@dataclass(frozen=True, slots=True)
class CatalogueApplication:
    """An application to be measured.

    Attributes
    ----------
    name
        As it is called in tables.
    family
        What is alike.
    step
        What one step is.
    words
        Makes the command of a number of steps.
    ranks
        MPI ranks; 1: started as it is.
    renews
        Whether it goes on by new processes.
    """

    name: str
    family: str
    step: str
    words: Callable[[int], list[str]]
    ranks: int = 1
    renews: bool = False

    def command(self, steps: int = ENDLESS_STEPS) -> list[str]:
        """Return the command that makes so many steps, started with all ranks.

        Raises
        ------
        HostError
            Something that it needs is not installed.
        """
        words = self.words(steps)
        return words if self.ranks == 1 else [_mpiexec(), "-n", str(self.ranks), *words]


def _mpiexec() -> str:
    own_mpiexec = Path(sys.executable).with_name("mpiexec")
    found = str(own_mpiexec) if own_mpiexec.exists() else shutil.which("mpiexec")
    if found is None:
        raise HostError("no mpiexec for applications of several ranks; install the package mpich")
    return found


_STEPS = {"mg": "a V-cycle", "cg": "a solve", "ep": "65,536 pairs"}


def _module(name: str, *before: str, after: Sequence[str] = ()) -> Callable[[int], list[str]]:
    """Return what makes the command of a module of ours: its words before and after the number of steps."""
    return lambda steps: [sys.executable, "-m", name, *before, str(steps), *after]


def _solver(app: str, size: str, ranks: int = 1) -> CatalogueApplication:
    choice = ["--grid", size] if app == "jacobi" else ["--class", size]
    words = _module("workloads.rrba", "--app", app, *choice, "--steps")
    name = f"{app}.{size}" + (f".{ranks}" if ranks > 1 else "")
    return CatalogueApplication(name, app, _STEPS.get(app, "a time step"), words, ranks)


def _kernel(
    name: str, family: str, what: str, kib: int = 0, *, kernel: str = "", share: int = 100, every: int = 0
) -> CatalogueApplication:
    rest = [str(every), str(_SLEEP_US)]

    def words(steps: int) -> list[str]:
        program = str(kernels_program())
        begin = [] if steps == ENDLESS_STEPS else ["env", f"OSUB_STEPS={steps}"]
        return [*begin, program, kernel or family, str(kib), str(share), *rest]

    return CatalogueApplication(name, family, what, words)


def _barrier(grain_us: int) -> CatalogueApplication:
    words = _module("predictor.programs.barrier", str(grain_us))
    return CatalogueApplication(
        f"barrier.{grain_us}us.2", "barrier", f"{grain_us} us of work and a barrier", words, 2
    )


_HOPS, _TRIAD, _ROWS = "4,096 dependent loads", "a triad of up to 32,768 elements", "rows of a product"

SOLVERS = (
    *(_solver(app, size) for app in ("lu", "bt", "sp", "mg", "cg", "ft") for size in ("S", "W")),
    _solver("ep", "S"),
    *(_solver("jacobi", size) for size in ("24", "64", "128")),
)
KERNELS = (
    _kernel("integer", "integer", "40,000 multiplications"),
    *(_kernel(f"stream.{kib}K", "stream", _TRIAD, kib) for kib in (96, 768, 98_304)),
    *(_kernel(f"chase.{kib}K", "chase", _HOPS, kib) for kib in (256, 768, 2_048, 16_384, 65_536)),
    *(_kernel(f"scatter.{kib}K", "scatter", "4,096 updates", kib) for kib in (768, 65_536)),
    *(_kernel(f"matmul.{kib}K", "matmul", _ROWS, kib) for kib in (96, 6_144)),
    _kernel("branches", "branches", "16,000 branches"),
    _kernel("sort", "sort", "4,096 numbers sorted"),
    _kernel("calls", "calls", "1,000 system calls"),
    _kernel("faults", "faults", "256 page faults", 1_024),
    _kernel("allocation", "allocation", "500 blocks"),
    _kernel("files", "files", "32 writes of 4 KiB", 4_096),
    _kernel("pipes", "pipes", "25 round trips to another process"),
)
MIMICS = tuple(
    _kernel(
        f"mimic.{kernel}.{kib}K" if kib else f"mimic.{kernel}", "mimic", what, kib, kernel=kernel, every=every
    )
    for kernel, what, kib, every in (
        ("integer", "40,000 multiplications", 0, 200),
        ("chase", _HOPS, 768, 400),
        ("stream", _TRIAD, 768, 700),
        ("matmul", _ROWS, 6_144, 120),
    )
)
COUPLED = (
    *(_solver(app, "W", 2) for app in ("lu", "mg")),
    *(_solver("jacobi", size, 2) for size in ("24", "64", "128")),
    *(_barrier(us) for us in (100, 1_000, 10_000)),
)
"""Two ranks each: for the kinds ``naive`` and ``gang``, and with one rank on the shared core."""

STRESSORS = (
    *(
        _kernel(f"stress.cache.{kib}K", STRESSOR, "4,096 updates", kib, kernel="scatter")
        for kib in (256, 768, 4_096)
    ),
    *(
        _kernel(f"stress.{name}.{share}", STRESSOR, "a piece of either", kib, kernel=kernel, share=share)
        for name, kernel, kib in (
            ("memory", "stream", 98_304),
            ("branch", "branches", 0),
            ("kernel", "kernel", 256),
        )
        for share in (25, 50, 99)
    ),
)

ALL = {each.name: each for each in (*SOLVERS, *KERNELS, *MIMICS, *COUPLED, *STRESSORS)}
_GROUPS = {
    "solvers": SOLVERS,
    "kernels": KERNELS,
    "mimics": MIMICS,
    "single": (*SOLVERS, *KERNELS, *MIMICS),
    "coupled": COUPLED,
    "stressors": STRESSORS,
}


NPB_VARIABLE = "OSUB_NPB"
"""Names the folder of stock NPB, as ``rrba --npb`` takes it."""


def npb_applications(environment: Mapping[str, str]) -> tuple[CatalogueApplication, ...]:
    """Return the stock benchmarks in the folder that ``OSUB_NPB`` names, of one rank; none without it."""
    folder = environment.get(NPB_VARIABLE)
    if not folder:
        return ()
    found = []
    for name in (*ITERATIONS, *_WHOLE):
        for size in NPB_CLASSES:
            try:
                binary = find_binary(Path(folder).absolute(), name, size)
            except InputError:
                continue
            if name in _WHOLE:
                found.append(_whole_runs(f"npb.{name}.{size}", name, [str(binary)]))
            else:
                found.append(_stock(Path(folder).absolute(), name, size, ITERATIONS[name]))
    return tuple(found)


_WHOLE = ("cg", "ft", "ep", "is")
"""Stock benchmarks that print no steps, or take no number of them: a whole run is a step."""


def _whole_runs(name: str, family: str, command: Sequence[str]) -> CatalogueApplication:
    words = _module("predictor.programs.repeated_command", after=command)
    return CatalogueApplication(name, family, "a whole run", words, renews=True)


def _stock(folder: Path, name: str, size: str, every: int) -> CatalogueApplication:
    words = _module("predictor.programs.npb_program", str(folder), name, size)
    what = "time steps" if name != "mg" else "V-cycles"
    return CatalogueApplication(f"npb.{name}.{size}", name, f"{every} {what}", words)


def own_program(name: str, command: str) -> CatalogueApplication:
    """Return a command of the user's as an application, of which a whole run is a step.

    Raises
    ------
    UsageError
        The name is none, or that of an application that is known; or the command cannot be read.
    """
    if not re.fullmatch(NAME, name) or name in known_applications():
        raise UsageError(
            f"{one_line(name, 40)!r} cannot be the name of a program of your own; choose another"
        )
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"the command of {name} cannot be read: {error}") from error
    if not words or shutil.which(words[0]) is None:
        raise UsageError(
            f"the command of {name} is no program that can be started: {one_line(command, 80)!r}"
        )
    return _whole_runs(name, name, words)


def known_applications(environment: Mapping[str, str] = os.environ) -> dict[str, CatalogueApplication]:
    """Return all applications by name: ours, and the stock benchmarks that are given."""
    return ALL | {each.name: each for each in npb_applications(environment)}


def applications_named(
    names: Sequence[str], environment: Mapping[str, str] = os.environ
) -> list[CatalogueApplication]:
    """Return the applications of these names, or of groups and families with these names, each once.

    Raises
    ------
    UsageError
        A name is none; the message lists groups and names.
    """
    known = known_applications(environment)
    groups = _GROUPS | {"npb": npb_applications(environment)}
    chosen: dict[str, CatalogueApplication] = {}
    for name in names:
        family = [each for each in known.values() if each.family == name]
        found = groups.get(name) or ([known[name]] if name in known else family)
        if not found:
            raise UsageError(_unknown(name, environment, [*groups], [*known]))
        chosen |= {each.name: each for each in found}
    return list(chosen.values())


def _unknown(name: str, environment: Mapping[str, str], groups: list[str], known: list[str]) -> str:
    if name == "npb" or name.startswith("npb."):
        folder = environment.get(NPB_VARIABLE)
        where = f"the folder {folder} has no such program" if folder else f"set {NPB_VARIABLE} to its folder"
        return f"no stock benchmark {one_line(name, 40)}: {where} (bin/lu.W.x, for instance)"
    return (
        f"no application is called {one_line(name, 40)!r}; there are the groups {', '.join(groups)}, "
        f"and {', '.join(known)}"
    )


@functools.cache
def kernels_program() -> Path:
    """Return the program's path; compile it where that has not been done.

    It is in ``osub/kernels`` in ``XDG_CACHE_HOME``, else in ``~/.cache``, in a folder named after sources,
    flags and compiler.

    Raises
    ------
    HostError
        There is no compiler, it fails, or no folder that only this user can write to.
    """
    compiler = shlex.split(os.environ.get("CC", "cc"))
    digest = hashlib.sha256("\0".join((*compiler, *FLAGS)).encode() + SOURCE.read_bytes()).hexdigest()[:16]
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    except RuntimeError as error:
        raise HostError("no home for the compiled kernels; set XDG_CACHE_HOME") from error
    folder = base / "osub" / "kernels" / digest
    if not usable_cache(folder):
        raise HostError(
            f"compiled kernels cannot be kept in {folder}; set XDG_CACHE_HOME to a folder of yours"
        )
    program = folder / "kernels"
    if not program.exists():
        _compile(compiler, program)
    return program


def _compile(compiler: list[str], program: Path) -> None:
    fresh = program.with_name(f"kernels.{os.getpid()}")
    try:
        done = subprocess.run(
            [*compiler, *FLAGS, "-o", str(fresh), str(SOURCE)], capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise HostError(
            f"no compiler for the measured kernels ({shlex.join(compiler)}: {error.strerror}); "
            "install one (Debian: apt-get install gcc libc6-dev) or set CC"
        ) from error
    if done.returncode != 0:
        fresh.unlink(missing_ok=True)
        raise HostError(
            f"{shlex.join(compiler)} cannot compile the measured kernels: {one_line(done.stderr)}"
        )
    fresh.replace(program)
