"""A container's own cgroup v2 as an engine gives it: read-only, processes in its root; made ready for slurmd.

No engine is needed for it: a cgroup name space and a mount name space are what an engine would make.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

INSIDE = """
import subprocess, sys
from pathlib import Path
root = Path(sys.argv[1])
subprocess.run(["mount", "-t", "cgroup2", "-o", "ro", "none", str(root)], check=True)
try:
    (root / "x").mkdir()
except OSError as error:
    print("before:", error.strerror)
from deploy.compose.inside import cgroups
cgroups.make_ready(root)
print("left in the root:", (root / "cgroup.procs").read_text().split())
print("leaf:", len((root / "init" / "cgroup.procs").read_text().split()) >= 1)
lines = Path("/proc/self/cgroup").read_text().splitlines()
print("mine:", [line for line in lines if line.startswith("0::")])
cgroups.make_ready(root)
(root / "system.slice").mkdir()
(root / "system.slice").rmdir()
"""


@pytest.fixture
def own_cgroup() -> Iterator[Path]:
    mount = next((path for path in (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified")) if
                  (path / "cgroup.controllers").exists()), None)  # fmt: skip
    if os.geteuid() != 0 or mount is None:
        pytest.skip("needs root and a mounted cgroup v2 hierarchy")
    (group := mount / f"osubtest_{uuid.uuid4().hex[:8]}").mkdir()
    yield group
    deadline_s = time.monotonic() + 10
    while group.exists():
        try:
            for path in (group / "init", group):
                if path.exists():
                    path.rmdir()
        except OSError:
            assert time.monotonic() < deadline_s, "its processes have not ended"
            time.sleep(0.05)


def test_it_is_mounted_anew_and_its_root_is_emptied(own_cgroup: Path, tmp_path: Path) -> None:
    enter = f'echo $$ >{own_cgroup}/cgroup.procs && exec unshare --cgroup --mount --fork "$@"'
    done = subprocess.run(
        ["sh", "-c", enter, "sh", sys.executable, "-P", "-c", INSIDE, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "before: Read-only file system",
        "left in the root: []",
        "leaf: True",
        "mine: ['0::/init']",
    ]
