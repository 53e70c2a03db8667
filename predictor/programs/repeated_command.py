"""Any command as a measured program: run again and again, each whole run a step of the meter.

``repeated_command STEPS COMMAND...``. What it prints is dropped; a run that fails ends the measurement.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence

from foundation.errors import HostError, OsubError, UsageError
from foundation.one_line import one_line
from predictor.programs.dies_with_parent import with_parent
from workloads.task.step_meter import Meter


def main() -> int:
    """Run until the steps are made; return the exit code."""
    words = sys.argv[1:]
    try:
        if len(words) < 2 or not (words[0].isascii() and words[0].isdigit()):
            raise UsageError("repeated_command: STEPS COMMAND..., the first a whole number")
        meter = Meter.of(os.environ)
        for _ in range(int(words[0])):
            run_once(words[1:])
            if meter is not None:
                meter.step()
    except OsubError as error:
        print(f"repeated_command: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def run_once(command: Sequence[str]) -> None:
    """Run a command to its end; what it prints is dropped.

    Raises
    ------
    HostError
        It cannot be started, or fails.
    """
    try:
        done = subprocess.run(
            [*with_parent(), *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            check=False,
        )
    except OSError as error:
        raise HostError(f"cannot start {one_line(command[0], 80)}: {error.strerror}") from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        last = f": {one_line(said[-1], 120)}" if said else ""
        raise HostError(f"{one_line(shlex.join(command), 80)} ended with code {done.returncode}{last}")


if __name__ == "__main__":
    sys.exit(main())
