"""The same source, compiled and as plain Python, gives the same schedules on hundreds of nodes."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from tests.fixtures.simulated_worlds import digests


def test_compiled_and_plain_kernels_agree_on_two_hundred_nodes() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.fixtures.simulated_worlds"],
        env=dict(os.environ) | {"OSUB_JIT": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    plain = json.loads(done.stdout)
    assert plain.pop("compiled") is False
    assert plain == digests()
