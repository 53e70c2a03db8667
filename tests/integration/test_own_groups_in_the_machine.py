"""CPU groups of the agent's own on cgroup v2 with systemd, where Slurm has no cgroup of a job."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from gangd.freezer.tree import own_group
from tests.attacks.attack import ACCOUNT
from tests.fixtures.machine.fair import OWN_GROUPS, SIGNALS, MachineCore, set_up
from tests.fixtures.machine.slurm import NODE, MachineCluster
from tests.fixtures.machine.started import cluster_of_module

SLOW_S = 120.0
HOME = "/system.slice/slurmd.service"
DAEMONS = f"$(pgrep -u {ACCOUNT} -f '[f]air_tricks.py one')"

pytestmark = [pytest.mark.long, pytest.mark.slurm, pytest.mark.timeout(1800)]
cluster = cluster_of_module(lambda cluster: set_up(cluster, SIGNALS, "games"))
Cheat = Callable[[str], int]


@pytest.fixture
def cheat(cluster: MachineCluster) -> Iterator[Cheat]:
    """Start a loop, and next to it a job that runs a trick; returns the number of that job."""
    core = MachineCore(cluster, SIGNALS)

    def start(trick: str) -> int:
        core.start_victim("while :; do :; done")
        job = core.start_attacker(trick, (), ACCOUNT, 600, None, wait=True)
        cluster.machine.until(f'test -n "{DAEMONS}"', SLOW_S, "its daemons compute")
        return job

    yield start
    print(cluster.logs())
    core.clear()


def all_in(path: str) -> str:
    """Script that succeeds if every daemon of the trick is in a cgroup."""
    is_in = f"grep -qx 0::{path} /proc/$pid/cgroup"
    return f"for pid in {DAEMONS}; do {is_in} || ! test -e /proc/$pid || exit 1; done"


def test_daemons_that_left_tree_session_and_environment_are_in_their_jobs_group(
    cluster: MachineCluster, cheat: Cheat
) -> None:
    machine, job = cluster.machine, cheat("moved")
    machine.until(all_in(f"/{own_group(NODE, job)}"), SLOW_S, "all daemons are in the group of their job")
    machine.until(f"grep -qx 1 {OWN_GROUPS}{job}/cpu.idle", SLOW_S, "it yields")
    machine.until(f"grep -qx 0 {OWN_GROUPS}{job}/cpu.idle", SLOW_S, "it has its slice")


def test_whatever_ends_the_agent_no_job_stays_low_or_away_from_home(
    cluster: MachineCluster, cheat: Cheat
) -> None:
    machine, job = cluster.machine, cheat("moved")
    low = f"grep -qx 1 {OWN_GROUPS}{job}/cpu.idle"
    machine.until(low, SLOW_S, "it yields")
    machine.must("systemctl kill --kill-whom=main -s KILL gang-agent")
    machine.until(f"! {low}", SLOW_S, "the guardian has given its priority back")
    machine.must(f"sleep 3; ! {low}")
    cluster.start_gang()
    machine.until(low, SLOW_S, "the next agent has it yield")
    machine.must("systemctl stop gang-agent", SLOW_S)
    machine.until(all_in(HOME), SLOW_S, "all daemons are where slurmd started their job")
    machine.must(f"! ls -d {OWN_GROUPS}*")
    cluster.start_gang()


def test_what_an_ended_job_left_behind_has_what_others_leave_and_no_more(
    cluster: MachineCluster, cheat: Cheat
) -> None:
    machine, job = cluster.machine, cheat("left")
    machine.until(f"! squeue -h -j {job} | grep -q .", SLOW_S, "the job has ended")
    low = f"grep -qx 1 {OWN_GROUPS}{job}/cpu.idle"
    machine.until(f"{low} && {all_in(f'/{own_group(NODE, job)}')}", SLOW_S, "its daemons yield")
    for _ in range(5):
        machine.must(f"sleep 1; {low}")
    machine.must("systemctl kill --kill-whom=main -s KILL gang-agent")
    machine.until(f"! {low}", SLOW_S, "the guardian has given their priority back")
    cluster.start_gang()
    machine.until(f"{low} && {all_in(f'/{own_group(NODE, job)}')}", SLOW_S, "they yield under the next agent")
