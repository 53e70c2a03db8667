"""A job of a hybrid trace as a program: it sets up, works, saves, and goes on from what it saved.

``python -m workloads.checkpointed`` computes nothing: it counts the time that passes while it may run. Its
state is the file that ``OSUB_STATE`` names. At ``SIGUSR1`` it saves at once and works no more, as a job does
that is about to be preempted; if it still runs a minute after ``--warning``, it goes on. A malleable job is
as fast as it has nodes; a resource manager that shrinks it writes the number that is left into
``OSUB_STATE.nodes``.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from foundation.files import write_whole

_TICK_S = 0.05
_SECONDS = ("setup", "every", "save", "work", "warning", "longest-tick")
_PATIENCE_S = 60.0


def _number(path: Path, otherwise: float) -> float:
    """Return the number that a file holds."""
    with suppress(OSError, ValueError):
        return float(path.read_text()[:40])
    return otherwise


def main() -> None:
    """Run to the end of the work."""
    parser = argparse.ArgumentParser(prog="python -m workloads.checkpointed")
    for name in _SECONDS:
        parser.add_argument(f"--{name}", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("--asked", type=int, default=0, help="Nodes of a malleable job that WORK is for.")
    given = parser.parse_args()
    state = Path(os.environ["OSUB_STATE"])
    resized = state.with_name(state.name + ".nodes")
    resized.unlink(missing_ok=True)
    nodes = float(os.environ.get("SLURM_JOB_NUM_NODES", "1"))
    asked: list[int] = []
    signal.signal(signal.SIGUSR1, lambda *_: asked.append(1))
    done, pause, saves = _number(state, 0.0), given.setup, False
    safe, last = done, time.monotonic()
    while done < given.work:
        time.sleep(_TICK_S)
        now = time.monotonic()
        left, last = now - last, now
        if given.longest_tick:  # a gap is time on which another job ran
            left = min(left, given.longest_tick)
        if asked:
            write_whole(state, f"{done}\n")
            time.sleep(given.warning + _PATIENCE_S)
            asked.clear()
            safe, last = done, time.monotonic()
            continue
        used = min(pause, left)  # what set-up or a checkpoint leaves of a tick is work's
        pause, left = pause - used, left - used
        if saves and not pause:
            saves, safe = False, done
            write_whole(state, f"{done}\n")
        nodes = _number(resized, nodes)
        done += left * (nodes / given.asked if given.asked else 1.0)
        if given.every and safe + given.every <= done < given.work and not saves:
            done, pause, saves = safe + given.every, given.save, True


if __name__ == "__main__":
    main()
