"""Who takes turns with whom: coupled jobs, demand, overlapping partitions, heterogeneous jobs, late nodes."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

from foundation.records import SliceRecord
from foundation.slurm import SlurmJobState
from tests.fixtures.looks import until
from tests.fixtures.tier import choose
from tests.integration.gang.frozen import is_frozen, processes_of
from tests.integration.gang.stage import SPIN, Stage

pytestmark = [pytest.mark.slurm, pytest.mark.parallel]

Roles = dict[int, dict[tuple[int, str], str]]


def roles_of(rows: Iterable[SliceRecord]) -> Roles:
    """Return roles by slice, then by job and node, from the first slice that held a job to the last one."""
    roles: Roles = defaultdict(dict)
    for row in rows:
        roles[row.slice][row.job, row.node] = str(row.role)
    contended = [number for number, slot in roles.items() if "held" in slot.values()]
    assert contended, "no job was ever held"
    return {number: slot for number, slot in roles.items() if min(contended) <= number <= max(contended)}


@pytest.mark.quick
def test_two_coupled_jobs_take_turns_and_both_nodes_agree(stage: Stage) -> None:
    stage.set_quantum(250)
    rrba = shlex.join([sys.executable, "-P", "-m", "workloads.rrba", "--app", "jacobi", "--target-s", "2"])
    body = f"cd {Path(__file__).parents[3]}; exec srun --mpi=pmi2 -N2 -n2 --ntasks-per-node=1 {rrba}"
    jobs = [stage.submit(body, *stage.nodes) for _ in range(2)]
    assert stage.finish(*jobs, within_s=120) == [SlurmJobState.COMPLETED] * 2
    # While both contend: a job that is left alone is let go at once, on each node when it learns of that.
    # Ranks end one after the other, and Slurm tells the end of the job in whole seconds.
    ends_s = [end_s for job in jobs if (end_s := stage.job(job).end_time) is not None]
    roles = roles_of(row for row in stage.rows(*jobs) if row.start_s + row.length_s < min(ends_s) - 1)
    whole = {
        number: slot
        for number, slot in roles.items()
        if len(slot) == 4 and set(slot.values()) <= {"run", "held"}
    }
    assert len(whole) >= 8
    for number, slot in whole.items():
        for job in jobs:
            assert len({slot[job, node] == "held" for node in stage.nodes}) == 1, (number, slot)
        for node in stage.nodes:
            assert [slot[job, node] for job in jobs].count("run") <= 1, (number, slot)
    for job in jobs:
        assert sum(slot[job, stage.nodes[0]] == "run" for slot in whole.values()) >= 3


def test_demand_distinguishes_spinners_sleepers_and_blocked_ranks(stage: Stage) -> None:
    """A gang with one spinning and one blocked rank is busy as a whole; who idles is not held."""
    stage.set_quantum(250)
    first, second = stage.nodes
    ranks = f"if [ $SLURM_PROCID = 0 ]; then {SPIN}; else exec sleep 600; fi"
    gang = stage.start(f"exec srun -n2 sh -c '{ranks}'", first, second)
    sleeper, spinner = stage.start("exec sleep 600", first), stage.start(SPIN, second)
    stage.wait_state(sleeper, "idle")
    stage.wait_state(gang, "busy")
    stage.wait_state(spinner, "busy")
    stage.wait_frozen(*processes_of(spinner, second))
    begin = stage.status().slice + 2
    until(lambda: stage.status().slice > begin + 8, 60, "gang and spinner have had turns")
    end = stage.status().slice
    stage.client.cancel([spinner])
    until(lambda: stage.job_status(spinner) is None, 60, "the spinner is gone")
    alone = stage.status().slice + 4
    rows = stage.rows(sleeper, gang, past=alone + 8)
    held = {(row.job, row.node) for row in rows if begin <= row.slice <= end and str(row.role) == "held"}
    assert held == {(gang, first), (gang, second)}
    roles = {str(row.role) for row in rows if row.job == gang and row.slice >= alone}
    assert roles == {"run"}, "a batch job that shares a core with an idle one is not rotated"


def test_jobs_of_two_partitions_on_one_core_take_turns(stage: Stage) -> None:
    stage.set_quantum(250)
    node = stage.nodes[0]
    day, night = stage.start(SPIN, node), stage.start(SPIN, node, options=("-p", "night"))
    for job in (day, night):
        stage.wait_state(job, "busy")
        stage.wait_frozen(*processes_of(job, node))
    roles = roles_of(stage.rows(day, night, past=stage.status().slice + 8))
    assert all(list(slot.values()).count("run") <= 1 for slot in roles.values())


def test_turns_go_on_under_the_lease_of_ten_thousand_nodes(stage: Stage) -> None:
    """Agents are silent for seconds; what changes is known as soon as ever, and no slice is left out."""
    stage.set_quantum(250)
    first, second = stage.nodes
    with stage.lease(12_500):
        gang = stage.start(f"exec srun -n2 sh -c '{SPIN}'", first, second)
        rival = stage.start(SPIN, first)
        for job in (gang, rival):
            stage.wait_state(job, "busy")
            stage.wait_frozen(*processes_of(job, first))
        begin = stage.status().slice + 2
        # Eight looks at jobs that do the same, then silences of 22 slices.
        steady = 8 + choose(1, 1, 2) * 24
        until(lambda: stage.status().slice > begin + steady, 60, "they have long been steady")
        stage.wait_state(stage.start("exec sleep 600", second), "idle")
        end = stage.status().slice
        stage.client.cancel([rival])
        until(lambda: stage.job_status(rival) is None, 60, "the rival is gone")
        time.sleep(6)  # until the last silence is over
        rows = [row for row in stage.rows(gang, rival, past=end) if begin <= row.slice < end]
    roles = roles_of(rows)
    assert sorted(roles) == list(range(min(roles), max(roles) + 1))
    assert len(roles) >= steady - 6
    for number, slot in roles.items():
        assert (slot.get((gang, first)) == "held") is (slot.get((gang, second)) == "held"), (number, slot)
        assert [slot.get((job, first)) for job in (gang, rival)].count("held") == 1, (number, slot)


def test_components_of_a_heterogeneous_job_run_and_are_held_together(stage: Stage) -> None:
    stage.set_quantum(250)
    first, second = stage.nodes
    body = f"#SBATCH -N1 -n1 -w {first}\n#SBATCH hetjob\n#SBATCH -N1 -n1 -w {second}\n"
    job = stage.start(body + f"srun --het-group=0,1 sh -c '{SPIN}'")
    components = [one.job_id for one in stage.client.jobs().jobs if one.het_job_id == job]
    assert len(components) == 2
    rivals = [stage.start(SPIN, node) for node in stage.nodes]
    for each in (job, *rivals):
        stage.wait_state(each, "busy")
    stage.wait_frozen(*processes_of(job, first))
    begin = stage.status().slice
    roles = roles_of(row for row in stage.rows(*components, past=begin + 8) if row.slice >= begin)
    whole = [set(slot.values()) for slot in roles.values() if len(slot) == 2]
    assert len(whole) >= 4
    assert all(len(seen) == 1 for seen in whole), roles


def test_late_switches_are_counted(stage: Stage) -> None:
    stage.set_quantum(250)
    node = stage.nodes[0]
    jobs = [stage.start(SPIN, node) for _ in range(2)]
    for job in jobs:
        stage.wait_state(job, "busy")
    agent = stage.daemon(f"gang-agent {node}").pid

    def counted_after_a_stop() -> bool:
        os.kill(agent, signal.SIGSTOP)
        try:
            end_s = time.monotonic() + 0.7  # shorter than the lease: the guardian has no reason to step in
            until(lambda: time.monotonic() >= end_s, 60, "several slices begin without the agent")
        finally:
            os.kill(agent, signal.SIGCONT)
        end_s = time.monotonic() + 4
        until(lambda: late() > before or time.monotonic() > end_s, 60, "the agent has reported")
        return late() > before

    def late() -> int:
        return stage.node_status(node).faults.get("late_switch", 0)

    before = late()
    until(counted_after_a_stop, 60, "lateness is counted")


def test_signal_freezer_reaches_a_process_that_left_its_session_and_tree(
    stage: Stage, tmp_path: Path
) -> None:
    stage.set_quantum(500)
    node = stage.nodes[0]
    with stage.another_agent(node, "signals"):
        daemon = tmp_path / "daemon"
        left, cleared = f"setsid sh -c '{SPIN}'", f"setsid env -i /bin/sh -c 'echo $$ >{daemon}; {SPIN}'"
        job = stage.start(f"({left} &); ({cleared} &); {SPIN}", node)
        rival = stage.start(SPIN, node)
        for each in (job, rival):
            stage.wait_state(each, "busy")
        all_three = [*processes_of(job, node), int(daemon.read_text())]
        assert len(set(all_three)) == 3
        stage.wait_frozen(*all_three)
        stage.wait_thawed(*all_three)
        stage.wait_frozen(*processes_of(rival, node))
        stage.clear()
    assert not any(is_frozen(pid) for pid in all_three)
