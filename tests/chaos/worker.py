"""What a job of the campaign runs: a task that wants a third of a core, counts, and ends in order.

``python -I -S worker.py FOLDER ROUNDS [deaf]``: one round is 2 ms of work and 4 ms of sleep. It ends with
exit code 0 after ROUNDS rounds (0: never), or once ``FOLDER/end`` exists; ``deaf`` ignores SIGTERM. It
counts its rounds in ``FOLDER/JOB-TASK``. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time


def work(folder: str, rounds: int) -> None:
    """Work; see the module."""
    name = f"{os.environ.get('SLURM_JOB_ID', '0')}-{os.environ.get('SLURM_PROCID', '0')}"
    fd = os.open(os.path.join(folder, name), os.O_RDWR | os.O_CREAT, 0o600)  # noqa: PTH118  (starts fast)
    done = 0
    while not rounds or done < rounds:
        until = time.perf_counter() + 0.002
        while time.perf_counter() < until:
            pass
        done += 1
        os.pwrite(fd, b"%d\n" % done, 0)
        if done % 20 == 0 and os.access(os.path.join(folder, "end"), os.F_OK):  # noqa: PTH118
            return
        time.sleep(0.004)


if __name__ == "__main__":
    if "deaf" in sys.argv:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.nice(10)
        with open("/proc/self/autogroup", "w") as weight:  # noqa: PTH123  (Linux weighs sessions, not processes)
            weight.write("10")
    work(sys.argv[1], int(sys.argv[2]))
