"""Releasing from the records of a state file: what guardian, operator and a restarted agent have in common.

Only what the records mark as held is touched, only through the validated way to a control file, and only
processes whose start time is the recorded one. FREEZING is thawed like FROZEN; what yields gets its priority
back.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

from gangd.freezer.procfs import ProcStat, read_stat, signals_to_continue
from gangd.freezer.tree import DIALECTS, write_control
from gangd.guardian.statefile import IDLE_KIND, PROCESS_KIND, Held, StateFile
from gangd.hold import thread_policy
from gangd.hold.cpu_weight_control import KNOBS


@dataclass(frozen=True, slots=True)
class Revived:
    """What one pass did: jobs thawed, records whose cgroup or process was gone, and failures as text."""

    jobs: frozenset[int] = frozenset()
    gone: int = 0
    failures: tuple[str, ...] = ()


def thaw_held(state: StateFile) -> Revived:
    """Thaw everything that ``state`` marks as held. The marks stay: they belong to the agent."""
    jobs: set[int] = set()
    gone = 0
    failures: list[str] = []
    table: dict[int, ProcStat] = {}
    # Children are continued before their parents: later records first.
    for held in sorted(state.held(), key=lambda held: (held.start_ticks, held.pid), reverse=True):
        try:
            done = _release(state, held, table)
        except OSError as error:
            failures.append(f"job {held.job}: {held.path or held.pid}: {error.strerror}")
            continue
        if done:
            jobs.add(held.job)
        else:
            gone += 1
    return Revived(frozenset(jobs), gone, tuple(failures))


def _release(state: StateFile, held: Held, table: dict[int, ProcStat]) -> bool:
    if held.kind == PROCESS_KIND:
        return _continue(held)
    if held.kind == IDLE_KIND:
        return thread_policy.restore(held.pid, held.start_ticks, table)
    knob = KNOBS.get(held.kind)
    if knob is not None:
        return knob.restore(state.cpu_root(), held.path)
    dialect = DIALECTS.get(held.kind)
    return dialect is not None and write_control(state.root(), dialect, held.path, dialect.thaw)


def _continue(held: Held) -> bool:
    """End our stop of a process if it is still the recorded one.

    The pidfd pins it before its start is compared.
    """
    try:
        pidfd = os.pidfd_open(held.pid)
    except ProcessLookupError:
        return False
    try:
        stat = read_stat(held.pid)
        if stat is None or stat.start_ticks != held.start_ticks:
            return False
        for number in signals_to_continue(held.pid):
            signal.pidfd_send_signal(pidfd, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(pidfd)
    return True
