"""The project's systemd units on a machine with systemd and cgroup v2: start, hang, crash, reload, stop."""

from __future__ import annotations

import pytest

from tests.fixtures.exposure import exposures, page_exposures, page_score, score
from tests.fixtures.machine.slurm import LEASE_S, UNITS_STATE, MachineCluster
from tests.fixtures.machine.started import cluster_of_module, two_jobs

SLOW_S = 30.0
WATCHDOG_S = 15.0
pytestmark = [pytest.mark.long, pytest.mark.slurm, pytest.mark.timeout(1800)]
cluster = cluster_of_module(MachineCluster.install_units)
jobs = two_jobs()


def main_pid(cluster: MachineCluster, unit: str) -> int:
    return int(cluster.machine.must(f"systemctl show -p MainPID --value {unit}"))


def test_units_are_sound_and_their_exposure_is_bounded(cluster: MachineCluster) -> None:
    for unit in ("gangd", "gang-agent"):
        output = cluster.machine.must(f"systemd-analyze verify /etc/systemd/system/{unit}.service 2>&1", 120)
        assert unit not in output, output
        output = cluster.machine.must(f"systemd-analyze security {unit}.service --no-pager", 120)
        assert score(output) == page_score(unit), "docs/production.md has another score"
        assert exposures(output) == page_exposures(unit), "docs/production.md explains others"
    assert (
        cluster.machine.must("ps -o user= -p $(systemctl show -p MainPID --value gangd)").strip() == "gangd"
    )
    heard = "systemctl show -p StatusText --value gangd | grep -q '1 of 1 node'"
    cluster.machine.until(heard, SLOW_S, "systemd's status has the number of agents heard")


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


def test_whatever_is_killed_nothing_stays_stopped_and_all_comes_back(
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


def test_slurm_is_read_by_a_process_of_its_own_in_the_same_sandbox(cluster: MachineCluster) -> None:
    """Gangd's child may do no more than gangd, reads Slurm's jobs all the same, and is replaced once dead."""
    machine = cluster.machine
    answered = f"grep -Eq '\"slurm_age_s\":[0-4][.]' {UNITS_STATE}/status.json"
    machine.until(answered, SLOW_S, "Slurm answers")
    reader = reader_of(cluster)
    assert machine.must(f"ps -o user= -p {reader}").strip() == "gangd"
    assert "/gangd.service" in machine.must(f"cat /proc/{reader}/cgroup")
    for pid in (reader, main_pid(cluster, "gangd")):
        facts = dict(
            line.split(":", 1) for line in machine.must(f"cat /proc/{pid}/status").splitlines() if ":" in line
        )
        assert int(facts["CapBnd"], 16) == int(facts["CapEff"], 16) == 0
        assert (facts["NoNewPrivs"].strip(), facts["Seccomp"].strip()) == ("1", "2")
    assert "jobs are read from" in machine.must("journalctl -q --no-pager -u gangd")
    machine.must(f"kill -KILL {reader}")
    machine.until(
        "journalctl -q --no-pager -u gangd | grep -q 'reads Slurm.s jobs failed'", SLOW_S, "gangd says so"
    )
    machine.until(answered, SLOW_S, "Slurm answers again")
    assert reader_of(cluster) != reader


def reader_of(cluster: MachineCluster) -> int:
    """Process that reads Slurm's jobs for gangd."""
    found = cluster.machine.until("pgrep -f '[a]part.process'", SLOW_S, "the reader runs")
    return int(found.split()[0])


def test_a_reload_takes_settings_and_the_daemon_stays(cluster: MachineCluster) -> None:
    before = main_pid(cluster, "gangd")
    cluster.machine.must(
        "sed -i s/quantum_ms.*/quantum_ms=300/ /etc/gangd/gangd.toml; systemctl reload gangd", 60
    )
    cluster.machine.until(
        f"grep -q '\"quantum_ms\":300' {UNITS_STATE}/status.json", SLOW_S, "slices of 300 ms"
    )
    cluster.machine.must(
        "sed -i s/quantum_ms.*/quantum_ms=-1/ /etc/gangd/gangd.toml; systemctl reload gangd", 60
    )
    cluster.machine.until(f"grep -q 'not reloaded' {UNITS_STATE}/status.json", SLOW_S, "it is refused")
    cluster.machine.must(
        "sed -i s/quantum_ms.*/quantum_ms=500/ /etc/gangd/gangd.toml; systemctl reload gangd", 60
    )
    assert main_pid(cluster, "gangd") == before


def test_after_stop_nothing_runs_and_nothing_is_left(cluster: MachineCluster) -> None:
    cluster.machine.must("systemctl stop gang-agent gangd", 120)
    cluster.machine.until("! pgrep -f 'gangd[.]agent[.]main run'", SLOW_S, "no agent runs")
    assert cluster.machine.must("systemctl is-failed gangd gang-agent || true").split() == ["inactive"] * 2
    cluster.machine.must("systemctl start gangd gang-agent", 120)
