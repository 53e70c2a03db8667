"""``python -m osub.sweep.worker MODULE:FUNCTION SCRATCH``: a process that runs points, one line of JSON each.

A line with the parameters comes in, a line with the outcome goes out: ``{"outcome": ...}``, or ``{"raised":
why, "again": whether another try may end otherwise}``. The end of the input ends the process at once, also in
the middle of a point, and with it SCRATCH, the folder of its temporary files, and the folder around it once
that is empty: so a sweep that is killed leaves nothing.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import queue
import shutil
import sys
import threading
import time
from pathlib import Path
from typing import NoReturn

from foundation.errors import OsubError

_LINGER_S = 1.0


def main() -> NoReturn:
    """Run points until the input ends."""
    Path(sys.argv[2]).mkdir(parents=True, exist_ok=True)
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    reader = threading.Thread(target=_read, args=(lines, sys.argv[2]), daemon=True)
    reader.start()
    module, _, name = sys.argv[1].partition(":")
    work = getattr(importlib.import_module(module), name)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    # What anything prints is no answer.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    while True:
        try:
            answer = {"outcome": work(json.loads(lines.get()))}
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            answer = {"raised": why, "again": not isinstance(error, OsubError)}
        try:
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
        except OSError:  # the sweep was killed: its input has ended, too, and the folder is to be removed
            reader.join()


def _read(lines: queue.SimpleQueue[str], scratch: str) -> None:
    """Pass the lines of the input on, and end the process with it."""
    for line in sys.stdin:
        lines.put(line)
    remove_scratch(Path(scratch))
    with contextlib.suppress(OSError):
        Path(scratch).parent.rmdir()
    os._exit(0)


def remove_scratch(folder: Path) -> None:
    """Remove a folder into which a point, or what it has started, may still write for a moment."""
    end_s = time.monotonic() + _LINGER_S
    while folder.exists():
        shutil.rmtree(folder, ignore_errors=True)
        if time.monotonic() > end_s:
            return
        time.sleep(0.01)


if __name__ == "__main__":
    main()
