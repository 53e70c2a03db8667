"""The project's systemd units on a machine with systemd and cgroup v2: start, hang, crash, reload, stop."""

from __future__ import annotations

import re
import site
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from foundation.errors import HostError
from tests.fixtures.machine.boot import Machine
from tests.fixtures.machine.root import cached_root, why_not
from tests.fixtures.machine.slurm import LEASE_S, MachineCluster, binds

SLOW_S = 30.0
WATCHDOG_S = 15.0

pytestmark = [pytest.mark.long, pytest.mark.slurm, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[MachineCluster]:
    why = why_not()
    if why is not None:
        pytest.skip(f"the machine {why}")
    try:
        root = cached_root()
    except HostError as error:
        pytest.skip(f"the machine's file system cannot be made: {error}")
    packages = Path(site.getsitepackages()[0])
    with (
        tempfile.TemporaryDirectory(prefix="machine-") as work,
        Machine(root, Path(work), binds(Path(__file__).parents[2], packages)) as machine,
    ):
        made = MachineCluster(machine)
        made.stop_gang()
        made.install_units()
        yield made


@pytest.fixture
def jobs(cluster: MachineCluster) -> Iterator[tuple[int, int]]:
    """Two jobs on the one core."""
    two = cluster.submit("first"), cluster.submit("second")
    yield two
    print(cluster.logs())
    cluster.cancel(*two)


def main_pid(cluster: MachineCluster, unit: str) -> int:
    return int(cluster.machine.must(f"systemctl show -p MainPID --value {unit}"))


def test_units_are_sound_and_their_exposure_is_bounded(cluster: MachineCluster) -> None:
    for unit in ("gangd", "gang-agent"):
        told = cluster.machine.must(f"systemd-analyze verify /etc/systemd/system/{unit}.service 2>&1", 120)
        assert unit not in told, told
        score = cluster.machine.must(f"systemd-analyze security {unit}.service --no-pager | tail -1", 120)
        print(score)
        level = float(re.search(r"([0-9.]+)", score.split(":")[1])[1])  # type: ignore[index]
        assert level < {"gangd": 2.0, "gang-agent": 4.5}[unit]
    assert (
        cluster.machine.must("ps -o user= -p $(systemctl show -p MainPID --value gangd)").strip() == "gangd"
    )
    status = cluster.machine.must("systemctl status gangd --no-pager")
    assert "1 of 1 nodes" in status


def test_jobs_take_turns_and_a_hung_agent_is_restarted_by_the_watchdog(
    cluster: MachineCluster, jobs: tuple[int, int]
) -> None:
    cluster.wait_held()
    agent = main_pid(cluster, "gang-agent")
    cluster.machine.must(f"kill -STOP {agent}")
    cluster.wait_thawed(LEASE_S + SLOW_S)
    cluster.machine.until(
        f"test $(systemctl show -p MainPID --value gang-agent) -ne {agent}",
        WATCHDOG_S + SLOW_S,
        "another agent",
    )
    cluster.machine.until(
        "journalctl -q --no-pager -u gang-agent | grep -q -i 'watchdog timeout'",
        SLOW_S,
        "it was the watchdog",
    )
    cluster.wait_held()


def test_whatever_is_killed_nothing_stands_still_and_all_comes_back(
    cluster: MachineCluster, jobs: tuple[int, int]
) -> None:
    cluster.wait_held()
    before = main_pid(cluster, "gang-agent")
    cluster.machine.must("systemctl kill -s KILL gang-agent")
    cluster.machine.until(
        f"pid=$(systemctl show -p MainPID --value gang-agent); test $pid -ne {before} && test $pid -ne 0",
        SLOW_S,
        "another agent",
    )
    cluster.wait_held()
    cluster.machine.must("systemctl kill -s KILL gangd")
    cluster.wait_thawed(LEASE_S + SLOW_S)
    cluster.wait_held()
    cluster.machine.must("systemctl stop gang-agent", 60)
    cluster.wait_thawed(SLOW_S)
    cluster.machine.must("systemctl start gang-agent", 120)
    cluster.wait_held()


def test_a_reload_takes_settings_and_the_daemon_stays(cluster: MachineCluster) -> None:
    before = main_pid(cluster, "gangd")
    cluster.machine.must(
        "sed -i s/quantum_ms.*/quantum_ms=300/ /etc/gangd/gangd.toml; systemctl reload gangd", 60
    )
    cluster.machine.until(
        "grep -q '\"quantum_ms\":300' /var/lib/units/state/status.json", SLOW_S, "slices of 300 ms"
    )
    cluster.machine.must(
        "sed -i s/quantum_ms.*/quantum_ms=-1/ /etc/gangd/gangd.toml; systemctl reload gangd", 60
    )
    cluster.machine.until("grep -q 'not reloaded' /var/lib/units/state/status.json", SLOW_S, "it is refused")
    cluster.machine.must(
        "sed -i s/quantum_ms.*/quantum_ms=500/ /etc/gangd/gangd.toml; systemctl reload gangd", 60
    )
    assert main_pid(cluster, "gangd") == before


def test_after_stop_nothing_runs_and_nothing_is_left(cluster: MachineCluster) -> None:
    cluster.machine.must("systemctl stop gang-agent gangd", 120)
    assert cluster.machine.run("pgrep -f 'gangd[.]agent[.]main'").code != 0
    assert cluster.machine.must("systemctl is-failed gangd gang-agent || true").split() == ["inactive"] * 2
    cluster.machine.must("systemctl start gangd gang-agent", 120)
