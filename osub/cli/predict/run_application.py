"""``osub predict run``: one of the measured applications, with a known amount of work."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Annotated

import typer

from foundation.errors import HostError, UsageError
from foundation.one_line import one_line
from predictor.chosen import steps_alone
from predictor.programs.program_catalogue import known_applications

_MOST_STEPS = 10**15


def run(
    name: Annotated[str, typer.Argument(help="An application; `osub predict measure --apps ?` lists them.")],
    steps: Annotated[int | None, typer.Option(min=1, help="How many steps it makes.")] = None,
    seconds: Annotated[
        float | None, typer.Option(help="As many steps as the measured host made alone in this time.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder of measured pairs (default: osub's own).", metavar="PAIRS")
    ] = None,
) -> None:
    """Run an application with known work: what takes longer then has lost. For the jobs of a replay."""
    application = known_applications().get(name)
    if application is None:
        raise UsageError(
            f"no application is called {one_line(name, 40)!r}; there are {', '.join(known_applications())}"
        )
    if (steps is None) == (seconds is None):
        raise UsageError("say how much work: --steps, or --seconds of the measured host")
    if seconds is not None and not (math.isfinite(seconds) and seconds > 0):
        raise UsageError(f"--seconds must be a positive number, not {seconds:g}")
    count = steps if seconds is None else steps_alone(name, seconds, data)
    words = application.command(min(max(1, count or 1), _MOST_STEPS))
    try:
        os.execvp(words[0], words)  # noqa: S606 - words of our own catalogue
    except OSError as error:
        raise HostError(f"cannot run {words[0]}: {error.strerror}") from error
