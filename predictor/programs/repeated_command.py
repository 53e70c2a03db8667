"""Any command as a measured program: run again and again, each whole run a step of the meter.

``repeated_command STEPS COMMAND...``. What it prints is dropped; a run that fails ends the measurement.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

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
            run_whole([*with_parent(), *words[1:]], words[1:], os.environ)
            if meter is not None:
                meter.step()
    except OsubError as error:
        print(f"repeated_command: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def run_whole(
    words: Sequence[str], command: Sequence[str], environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a command that ends by itself; its output is dropped.

    Raises
    ------
    HostError
        It cannot be started, or ends with another code than 0.
    """
    try:
        done = subprocess.run(
            list(words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=dict(environment),
            check=False,
        )
    except OSError as error:
        raise HostError(f"cannot start {one_line(words[0])}: {error.strerror}") from error
    if done.returncode != 0:
        said = [line for line in done.stderr.strip().splitlines() if not line.startswith("==")]
        last_words = f": {one_line(said[-1])}" if said else ""
        how = f"ended with code {done.returncode}" if done.returncode > 0 else "was killed"
        raise HostError(f"{one_line(' '.join(command), 80)} {how}{last_words}")
    return done


if __name__ == "__main__":
    sys.exit(main())
