"""Freezing without cgroups: SIGSTOP and SIGCONT over the processes of a step. The last resort.

Stops are visible to parents (shells, mpiexec) and a process may leave the tree between two looks, so a
caller looks, adopts and freezes again until ``freeze`` finds nothing new. Only processes that we stopped
are continued: one that was stopped already is left alone, and one that another stops while we hold it stays
stopped. Every process is addressed through a pidfd whose start time was checked, so a reused pid can't be
hit. Parents are stopped before and continued after their children, and so never see them stopped. What we
stopped stays known, and in the ledger, until it is continued or gone.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gangd.freezer.holder import (
    CpuTimeFile,
    Did,
    HoldOutcome,
    Ledger,
    Step,
    StepKey,
    StepState,
    Traits,
    WithoutFolders,
)
from gangd.freezer.job_accounts import JobAccounts
from gangd.freezer.membership import (
    JOB_VARIABLES,
    Identity,
    Members,
    MembershipClaim,
    Origin,
    assign,
    claim_of,
    job_of_cgroups,
    step_of_title,
)
from gangd.freezer.procfs import (
    PROC,
    SLURM_DAEMONS,
    WORK,
    ProcStat,
    birthplace,
    command_line,
    environment,
    has_spare_files,
    is_shortage,
    is_slurm_daemon,
    is_stopped,
    owner,
    pending_signals,
    process_ns,
    read_stat,
    scan,
    signals_to_continue,
)
from gangd.freezer.tree import own_group

_READS = 8
"""How often an environment without a node is read again: a process may exec into another."""
_STOP_BIT = 1 << (signal.SIGSTOP - 1)


@dataclass(slots=True)
class _FrozenProcess:
    pid: int
    start_ticks: int
    pidfd: int
    slot: int | None
    ours: bool = False


def send_signal(pidfd: int, number: signal.Signals) -> str | None:
    """Send a signal; None if it was sent, an empty text if the process is gone, else what went wrong."""
    try:
        signal.pidfd_send_signal(pidfd, number)
    except ProcessLookupError:
        return ""
    except OSError as error:
        return error.strerror or str(error)
    return None


def _is_stopping(pid: int) -> bool:
    """Return whether a stop waits for a process that was seen running, or was taken since."""
    if pending_signals(pid) & _STOP_BIT:
        return True
    stat = read_stat(pid)
    return stat is not None and is_stopped(stat)


class SignalFreezer(WithoutFolders):
    """Stops and continues the processes of the steps of ``node``.

    Parameters
    ----------
    node
        Slurm's name of this node.
    ledger
        Remembers every process that we stopped, by pid and start time.
    spare
        Pids that are never stopped (the agent's guardian); the caller's own is added.
    cpuacct_root
        Mount of v1's ``cpuacct`` hierarchy, where Slurm may account by cgroup; None for none.
    own_root
        Unified hierarchy in which the agent has groups of its own: they are accounts, too. None for none.
    adopts
        Whether processes that began as tasks do are taken for a job's: not where users log in to the host
        without a login session, as to an embedded cluster.
    send
        How a signal is sent, as ``send_signal`` does.
    """

    name = "signals"
    traits = Traits(searches_processes=True)

    def __init__(
        self,
        node: str,
        ledger: Ledger,
        spare: frozenset[int] = frozenset(),
        cpuacct_root: Path | None = None,
        own_root: Path | None = None,
        *,
        adopts: bool = False,
        send: Callable[[int, signal.Signals], str | None] = send_signal,
    ) -> None:
        self._node = node
        self._adopts = adopts
        self._ledger = ledger
        self._send = send
        self.spare = spare | {1, os.getpid()}
        self._seen = Members()
        self._stepds: dict[int, list[int]] = {}
        self._accounts = JobAccounts(own_root or cpuacct_root, in_lines=own_root is not None)
        self._cpuacct_root, self._own_root = cpuacct_root, own_root
        self._claims: dict[Identity, tuple[MembershipClaim, int]] = {}
        self._born: dict[Identity, tuple[str, str]] = {}
        self._of_tasks: frozenset[tuple[str, str]] = frozenset()
        self._known: dict[StepKey, dict[Identity, _FrozenProcess]] = {}
        self._adopted_ns: int | None = None

    def look(self) -> tuple[Step, ...]:
        """See ``Holder``. Reads every process of the host: milliseconds."""
        table = {stat.pid: stat for stat in scan(PROC)}
        stepds: dict[int, StepKey] = {}
        named = [stat for stat in table.values() if stat.comm in SLURM_DAEMONS]
        daemons = frozenset(stat.pid for stat in named if is_slurm_daemon(stat.pid))
        for pid in daemons:
            key = step_of_title(command_line(pid)) if table[pid].comm == "slurmstepd" else None
            if key is not None:
                stepds[pid] = key
        self._stepds = {}
        for pid, key in stepds.items():
            self._stepds.setdefault(key.job, []).append(pid)
        slurmds = [pid for pid in daemons if table[pid].comm == "slurmd"]
        one_node = len(slurmds) == 1
        starters = (*slurmds, *stepds) if self._adopts and one_node else ()
        self._of_tasks = frozenset(self._birthplace(table[pid]) for pid in starters)
        spare = self.spare | daemons
        self._seen = assign(
            table, stepds, self._seen, self._claim, self._node, spare, self._origin, one_node=one_node
        )
        alive = {stat.identity for stat in table.values()}
        self._claims = {identity: known for identity, known in self._claims.items() if identity in alive}
        self._born = {identity: known for identity, known in self._born.items() if identity in alive}
        return tuple(Step(key, self._seen.uids.get(key)) for key in sorted(self._seen.steps))

    def adopt(
        self, found: tuple[Step, ...], pause: Callable[[], object] = WORK.pause_if_spent
    ) -> tuple[Step, ...]:
        """See ``Holder``."""
        unseen = set()
        wanted = {step.key: self._seen.steps.get(step.key, []) for step in found}
        for key, members in list(self._known.items()):
            identities = {stat.identity for stat in wanted.get(key, ())}
            for identity in [identity for identity in members if identity not in identities]:
                pause()
                if self._let_go(members[identity]):
                    self._discard(members.pop(identity))
            if key not in wanted and not members:
                del self._known[key]
        for key, stats in wanted.items():
            members = self._known.setdefault(key, {})
            for stat in stats:
                pause()
                try:
                    member = members.get(stat.identity) or self._open(key.job, stat)
                except OSError:  # descriptors are used up: it must not be stopped
                    unseen.add(key.job)
                    continue
                if member is None:
                    continue
                members[stat.identity] = member
                if member.slot is None:  # also one that did not fit in the ledger before
                    member.slot = self._ledger.claim_process(stat.pid, stat.start_ticks, key.job)
        self.unseen = frozenset(unseen)
        self._adopted_ns = time.monotonic_ns()
        if self._own_root is not None:
            self._accounts.follow(
                {step.key.job: own_group(self._node, step.key.job) for step in found}, pause
            )
        elif self._cpuacct_root is not None:
            own = f"slurm_{self._node}"
            base = own if (self._cpuacct_root / own).is_dir() else "slurm"
            uids = {step.key.job: step.uid for step in found if step.uid is not None}
            folders = {job: f"{base}/uid_{uid}/job_{job}" for job, uid in uids.items()}
            self._accounts.follow(folders, pause)
        kept = tuple(Step(key, None) for key in self._known if key not in wanted)
        return found + kept

    def hold(self, key: StepKey) -> HoldOutcome:
        """See ``Holder``."""
        members = self._known.get(key)
        if members is None:
            return HoldOutcome(key, Did.GONE)
        did, text = Did.NOTHING, None
        for member in members.values():
            if member.ours:
                continue
            stat = read_stat(member.pid)
            if (
                stat is None
                or stat.start_ticks != member.start_ticks
                or not stat.alive
                or is_stopped(stat)
                or _is_stopping(member.pid)  # another's stop is under way
            ):
                continue
            if member.slot is None:
                did, text = Did.FAILED, "the ledger is full: not stopped"
                continue
            self._ledger.hold(member.slot)  # noted before it is so
            member.ours = True
            trouble = self._send(member.pidfd, signal.SIGSTOP)
            if trouble is None:
                did = did if did is Did.FAILED else Did.WROTE
            else:
                self._settle(member)
                if trouble:
                    did, text = Did.FAILED, f"cannot stop process {member.pid}: {trouble}"
        return HoldOutcome(key, did, text)

    def release(self, key: StepKey) -> HoldOutcome:
        """See ``Holder``."""
        members = self._known.get(key)
        if members is None:
            return HoldOutcome(key, Did.GONE)
        did, text = Did.NOTHING, None
        for member in reversed(members.values()):
            if not member.ours:
                continue
            trouble = self._continue(member)
            if trouble:
                did, text = Did.FAILED, f"cannot continue process {member.pid}: {trouble}"
                continue
            self._settle(member)
            did = did if did is Did.FAILED else Did.WROTE
        return HoldOutcome(key, did, text)

    def disown(self, key: StepKey) -> None:
        """See ``Holder``."""
        for member in self._known.get(key, {}).values():
            if member.ours:
                self._settle(member)

    def state(self, key: StepKey) -> StepState:
        """See ``Holder``. FREEZING while a stop of ours is under way, THAWED if none is left."""
        alive = [
            (member, is_stopped(stat))
            for member in self._known.get(key, {}).values()
            if (stat := read_stat(member.pid)) is not None
            and stat.alive
            and stat.start_ticks == member.start_ticks
        ]
        if not alive:
            return StepState.GONE
        if all(stopped for _, stopped in alive):
            return StepState.FROZEN
        ours = [(member.pid, stopped) for member, stopped in alive if member.ours]
        if any(stopped or _is_stopping(pid) for pid, stopped in ours):
            return StepState.FREEZING
        return StepState.THAWED

    def pids(self, key: StepKey) -> tuple[int, ...]:
        """See ``Holder``."""
        return tuple(member.pid for member in self._known.get(key, {}).values())

    def account(self, job: int) -> CpuTimeFile | None:
        """See ``Holder``."""
        return self._accounts.account(job)

    def cpu_ns(self, job: int) -> int | None:
        """See ``Holder``."""
        return self._accounts.cpu_ns(job)

    def daemon_ns(self, job: int) -> int:
        """See ``Holder``."""
        return self._accounts.daemon_ns(job, self._stepds.get(job, ()))

    def close(self) -> None:
        """See ``Holder``."""
        self._accounts.close()
        for members in self._known.values():
            for member in members.values():
                self._let_go(member)
                self._discard(member)
        self._known.clear()

    def _claim(self, stat: ProcStat) -> MembershipClaim:
        WORK.pause_if_spent()
        claim, reads = self._claims.get(stat.identity, (None, 0))
        if claim is None or (claim.node is None and reads < _READS):
            claim = claim_of(environment(stat.pid, JOB_VARIABLES), owner(stat.pid))
            self._claims[stat.identity] = claim, reads + 1
        return claim

    def _origin(self, stat: ProcStat) -> Origin:
        born = self._birthplace(stat)
        return Origin(*job_of_cgroups(born[0], self._node), as_tasks=born in self._of_tasks)

    def _birthplace(self, stat: ProcStat) -> tuple[str, str]:
        WORK.pause_if_spent()
        if stat.identity not in self._born:
            self._born[stat.identity] = birthplace(stat)
        return self._born[stat.identity]

    def _open(self, job: int, stat: ProcStat) -> _FrozenProcess | None:
        try:
            pidfd = os.pidfd_open(stat.pid)
        except OSError as error:
            if is_shortage(error):
                raise
            return None  # it ended
        if not has_spare_files(pidfd):
            os.close(pidfd)
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        now = read_stat(stat.pid)
        if now is None or now.start_ticks != stat.start_ticks:
            os.close(pidfd)
            return None
        if self._own_root is not None and self._adopted_ns is not None and self._origin(stat).job != job:
            since_ns = time.monotonic_ns() - self._adopted_ns  # its job's group, the account, comes later
            self._accounts.add(job, min(process_ns(stat.pid) or 0, since_ns))
        return _FrozenProcess(stat.pid, stat.start_ticks, pidfd, None)

    def _let_go(self, member: _FrozenProcess) -> bool:
        """Continue a process that is gone or has left its step; False if it has to be tried again."""
        if member.ours and not self._continue(member):
            self._settle(member)
        return not member.ours

    def _continue(self, member: _FrozenProcess) -> str | None:
        """End our stop of a process; returns as ``send``."""
        trouble = [self._send(member.pidfd, number) for number in signals_to_continue(member.pid)]
        return trouble[0] if trouble else None

    def _settle(self, member: _FrozenProcess) -> None:
        member.ours = False
        if member.slot is not None:
            self._ledger.release(member.slot)

    def _discard(self, member: _FrozenProcess) -> None:
        """Close the files. The ledger keeps what we still hold, for a later thaw."""
        os.close(member.pidfd)
        if member.slot is not None and not member.ours:
            self._ledger.drop(member.slot)
