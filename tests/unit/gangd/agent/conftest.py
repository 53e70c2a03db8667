"""Fixtures that make cgroups and processes, and leave nothing behind."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from gangd.agent.native import load
from hatch_build import compile_switch
from tests.fixtures.gang_host import V1_MOUNT, V2_MOUNTS, FakeV1, RealCgroups
from tests.fixtures.gang_switch import SPY


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The C part of the switch as it is now, not as it was installed."""
    return _compiled(tmp_path_factory.mktemp("switch") / "_switch.so")


@pytest.fixture(scope="session")
def spied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, for ``Spy``."""
    folder = tmp_path_factory.mktemp("spied")
    (folder / "spy.h").write_text(SPY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CC", f"cc -include {folder / 'spy.h'}")
        return _compiled(folder / "_switch.so")


@pytest.fixture(params=["python", "native"])
def maker(request: pytest.FixtureRequest) -> ctypes.CDLL | None:
    """What makes the switches: Python alone (None), or Python and native code."""
    return None if request.param == "python" else load(request.getfixturevalue("library"))


def _compiled(path: Path) -> Path:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler here")
    assert compile_switch(Path(__file__).parents[4], path) is None
    assert load(path) is not None
    return path


@pytest.fixture
def fake_v1(tmp_path: Path) -> Iterator[FakeV1]:
    fake = FakeV1(tmp_path / "freezer")
    yield fake
    for descriptor in Path("/proc/self/fd").iterdir():  # an agent keeps those of its steps to its end
        with suppress(OSError):
            if descriptor.readlink().is_relative_to(fake.root):
                os.close(int(descriptor.name))


@pytest.fixture
def real_v1() -> Iterator[RealCgroups]:
    if os.geteuid() != 0 or not (V1_MOUNT / "cgroup.procs").exists():
        pytest.skip("needs root and a cgroup v1 freezer hierarchy")
    cgroups = RealCgroups(V1_MOUNT / f"osubtest_{os.getpid()}", "freezer.state", "THAWED")
    yield cgroups
    cgroups.clean()


@pytest.fixture
def real_v2() -> Iterator[RealCgroups]:
    mount = next((path for path in V2_MOUNTS if (path / "cgroup.controllers").exists()), None)
    if os.geteuid() != 0 or mount is None:
        pytest.skip("needs root and a cgroup v2 hierarchy")
    cgroups = RealCgroups(mount / f"osubtest_{os.getpid()}", "cgroup.freeze", "0")
    yield cgroups
    cgroups.clean()


@pytest.fixture
def children() -> Iterator[list[subprocess.Popen[bytes]]]:
    """A list whose processes are continued, killed and reaped at the end."""
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for child in started:
        with contextlib.suppress(ProcessLookupError):
            child.send_signal(signal.SIGCONT)
        child.kill()
        child.wait()
        for stream in (child.stdin, child.stdout, child.stderr):
            if stream is not None:
                stream.close()
