"""A writer is killed at random instants; every row that it reported is there afterwards, once."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from foundation.records import RunWriter, load_run
from tests.fixtures.records import make_ended, make_info, make_trace

WRITER = """
import sys
from pathlib import Path
from foundation.records import RunWriter
from tests.fixtures.records import make_ended
with RunWriter.reopen(Path(sys.argv[1])) as writer:
    for number in range(int(sys.argv[2]), 1_000_000):
        writer.append_job(make_ended(number, app="x" * (number % 5000)))
        print(number, flush=True)
"""


@pytest.mark.parametrize("seed", range(5))
def test_every_reported_row_survives_a_kill(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    folder = tmp_path / "RUN"
    RunWriter.create(folder, make_info(), make_trace(tmp_path)).close()
    reported = 0
    for _ in range(3):
        reported = _write_until_killed(folder, reported, rng.randint(20, 400), rng.random() * 0.004)
        known = load_run(folder).jobs["trace_job"].to_list()
        assert known in (list(range(1, reported + 1)), list(range(1, reported + 2)))
        reported = len(known)
    with RunWriter.reopen(folder) as writer:
        writer.append_job(make_ended(reported + 1))
        writer.finish(wall_s=1)
    assert load_run(folder).jobs["trace_job"].to_list() == list(range(1, reported + 2))


def _write_until_killed(folder: Path, reported: int, rows: int, delay_s: float) -> int:
    """Start a writer, kill it a little after it reported so many rows, and return the last one reported."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder), str(reported + 1)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        killer = threading.Timer(delay_s, process.send_signal, [signal.SIGKILL])
        for line in process.stdout:
            reported = int(line)
            rows -= 1
            if rows == 0:
                killer.start()
        killer.join()
    assert process.returncode == -signal.SIGKILL
    return reported
