"""What holds for every test: the tier's examples, which tests run when, and that nothing is left behind."""

from __future__ import annotations

import gc
import signal
from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import NodeManager

from tests.fixtures import cpu_durations
from tests.fixtures.leftovers import LEFT_BEHIND, Watch
from tests.fixtures.tier import EXAMPLES, tier

if TYPE_CHECKING:
    from tests.fixtures.cli import Cli

LAST = "simulat"
"""In the path of tests of the simulator, which run last: its kernels may still be compiled at first."""

TOGETHER = ("tests/integration/gang/", "tests/unit/gangd/agent/test_hold")
"""Tests that share a cluster, or the cores that their processes are pinned to: one worker has each kind."""

# Reproducible in quick and default: a broken property fails on the same example here and in CI. The
# long tier looks for new ones. A busy host makes examples late, not wrong: no deadline, no complaint of it.
for name, count in EXAMPLES.items():
    settings.register_profile(
        name, max_examples=count, deadline=None, derandomize=name != "all", print_blob=True,
        suppress_health_check=[HealthCheck.too_slow],
    )  # fmt: skip
settings.load_profile(tier())

_WATCH = pytest.StashKey[Watch]()


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """Return the command line, called in this process."""
    from tests.fixtures.cli import Cli

    return Cli(capsys)


class FileOrFolder(LoadFileScheduling):  # type: ignore[misc]  # xdist is without types here
    """Gives workers a file at a time, and one of them what belongs together."""

    def _split_scope(self, nodeid: str) -> str:
        kind = next((each for each in TOGETHER if nodeid.startswith(each)), None)
        return kind or super()._split_scope(nodeid)


def pytest_addoption(parser: pytest.Parser) -> None:
    cpu_durations.add_option(parser)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FileOrFolder | None:
    return FileOrFolder(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_configure(config: pytest.Config) -> None:
    # Ended from outside, a run ends its clusters and thaws what it froze, as it does at Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    NodeManager.EXIT_TIMEOUT = 60  # seconds in which a worker that is to end takes its clusters down
    cpu_durations.register(config)
    is_worker = hasattr(config, "workerinput")
    if not is_worker and not config.option.collectonly:
        config.stash[_WATCH] = Watch.begin()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage among tests and modules, which stay to the end: neither now nor later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what needs the host for itself, skip what this tier has no time for, put the simulator last."""
    for item in items:
        marks = {mark.name for mark in item.iter_markers()}
        if marks & {"slurm", "chaos"} and "parallel" not in marks:
            item.add_marker("alone")
        if "long" in marks and tier() != "all":
            item.add_marker(pytest.mark.skip(reason="long: `scripts/test --all` has time for it"))
    items.sort(key=lambda item: LAST in item.nodeid.split("::")[0])


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    watch = session.config.stash.get(_WATCH, None)
    if watch is None:
        return
    left = watch.end()
    if left:
        session.exitstatus = LEFT_BEHIND
        _report(session.config, left)


def _report(config: pytest.Config, left: list[str]) -> None:
    """Count what was left behind as errors, so that pytest's own last line tells of them."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:
        return
    for what in left:
        report = pytest.TestReport(
            nodeid="session", location=("tests/conftest.py", None, "session"), keywords={},
            outcome="failed", longrepr=f"left behind by this run: {what}", when="teardown",
        )  # fmt: skip
        reporter.stats.setdefault("error", []).append(report)
