"""One trace simulated with several multiplicities, a RUN each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from foundation.errors import OutputError
from osub.api.run import Run


def run_each(
    several: Sequence[int],
    out: Path,
    label: str | None,
    simulate: Callable[[int, Path, str | None], Run],
    step: Callable[[int, int], AbstractContextManager[object]] = lambda _, __: nullcontext(),
) -> list[Run]:
    """Simulate with each multiplicity into ``out/mM``.

    Parameters
    ----------
    several
        The multiplicities.
    out
        A folder that does not exist or is empty.
    label
        Of the runs, or None.
    simulate
        Simulates with a multiplicity into a folder, under a label.
    step
        Gives the context of each simulation: its multiplicity, and its place from 1 on.

    Raises
    ------
    OutputError
        There is something in ``out``.
    OsubError
        As a simulation raises; those before it are kept.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise OutputError(f"{out} exists already: choose another folder for the runs")
    runs = []
    for at, number in enumerate(several, start=1):
        with step(number, at):
            name = None if label is None else f"{label} M={number}"
            runs.append(simulate(number, out / f"m{number}", name))
    return runs
