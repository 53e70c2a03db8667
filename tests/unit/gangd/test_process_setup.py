"""Room for open files, as much as the system gives."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import resource
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
from gangd.daemon_process import allow_open_files
print(allow_open_files() == hard)
print(resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard))
print(allow_open_files() == hard)
"""


def test_the_soft_limit_of_open_files_is_raised_to_the_hard_one() -> None:
    said = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["True"] * 3
