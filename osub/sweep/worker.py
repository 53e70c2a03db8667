"""``python -m osub.sweep.worker MODULE:FUNCTION``: a process that runs points, one line of JSON each.

A line with the parameters comes in, a line with the outcome goes out: ``{"outcome": ...}``, or ``{"raised":
why, "again": whether another try may end otherwise}``. The end of the input is the end of the process.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys

from foundation.errors import OsubError


def main() -> int:
    """Run points until there are no more."""
    # Ctrl-C is the sweep's, which ends its processes itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    module, _, name = sys.argv[1].partition(":")
    work = getattr(importlib.import_module(module), name)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    # What anything prints is no answer.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    for line in sys.stdin:
        try:
            answer = {"outcome": work(json.loads(line))}
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            answer = {"raised": why, "again": not isinstance(error, OsubError)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
