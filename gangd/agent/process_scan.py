"""A walk over all processes of the host, in small pieces: who runs outside of jobs, and which step is unseen.

*Strays* are processes of users who have jobs here, outside of every job: what no freeze reaches (a login by
ssh without ``pam_slurm_adopt``, a daemon that escaped). They run on the cores of the job that owns the slice.
The agent never touches them; it tells the administrator.

*Stepds* are the slurmstepd processes of this node. A job that has one, and of which no step was ever found
(``UnseenSteps``), is kept in a place that we do not know: it can't be held, and that must not go unnoticed.

The agent runs before everything else on its cores, and a host may have a hundred thousand processes. So each
piece takes little time, and rests follow that are many times as long.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path

from foundation.units import counted, verb
from gangd.agent.agenda import Agenda, AgendaItem
from gangd.freezer.holder import StepKey
from gangd.freezer.membership import FIRST_USER, step_of_title
from gangd.freezer.procfs import (
    PROC,
    ProcStat,
    command_line,
    is_shortage,
    is_slurm_daemon,
    is_slurmstepd,
    owner,
    read_stat,
)
from gangd.freezer.tree import JOB2
from gangd.hold.cpu_priority import threads

PIECE_NS = 2_000_000
"""CPU time that one piece of the walk may take."""
REST_SHARE = 100
"""A piece is followed by a rest at least so many times as long."""
ROUND_NS = 10_000_000_000
"""A walk begins so long after the last one began."""
SLACK_NS = 300_000_000
"""A piece waits so long for a wake-up that happens anyway."""
_CHECK_EVERY = 8
_NO_STEP = re.compile(r"\S*slurmstepd\S*(?: (?:infinity|getenv|spank .*))?|slurmstepd: \[.*:namespace\]")
"""What a slurmstepd is called that serves no step, or none yet."""
_IN_JOB = re.compile(
    r"^(?:[0-9]+:[a-z,_=]*:.*?/slurm(?:_[^/\n]+)?/uid_[0-9]+/job_[0-9]+|"
    rf"0::(?!/user\.slice/).*slurmstepd\.scope/(?:{JOB2}|[^/\n]+/step_))",
    re.MULTILINE,
)
"""A cgroup that Slurm made for a job; in his own, below ``user.slice``, a user makes what he likes."""
_NODE_OF_CGROUP = re.compile(r"/(?:slurm_([^/\n]+)|([^/\n]+)_slurmstepd\.scope)/")


@dataclass(frozen=True, slots=True)
class ScanFindings:
    """What one walk over all processes found: strays by user, a slurmstepd of each step whose tasks run here.

    ``unread`` are slurmstepds of which the title tells no step.
    """

    strays: dict[int, list[int]] = field(default_factory=dict)
    stepds: dict[StepKey, int] = field(default_factory=dict)
    unread: dict[int, str] = field(default_factory=dict)

    def stray_faults(
        self, members: AbstractSet[int], jobs: Mapping[int, int]
    ) -> Iterator[tuple[int, list[int], str, int | None]]:
        """Name user, processes, text and job of each user's strays, without members of jobs.

        ``jobs`` has a job of each user: the controller knows by it what he is called.
        """
        for uid, pids in self.strays.items():
            outside, job = [pid for pid in pids if pid not in members], jobs.get(uid)
            if outside:
                run = f"{counted(len(outside), 'process')} of {'its user' if job else f'user {uid}'} "
                run += f"{verb(len(outside), 'runs', 'run')} outside of jobs"
                yield uid, outside, f"{run}, process {outside[0]} for one", job


class ProcessScan:
    """The walk.

    Parameters
    ----------
    node
        Slurm's name of this node: several may share a host.
    agenda
        Says when to go on (``AgendaItem.CENSUS``), by ``SLACK_NS`` later at the latest.
    proc
        Where processes are listed.
    cpu_clock
        CPU time of the calling thread (ns).
    finds_strays
        Whether to look for strays; not where users log in to the host.
    """

    def __init__(
        self,
        node: str,
        agenda: Agenda,
        proc: Path = PROC,
        cpu_clock: Callable[[], int] = time.thread_time_ns,
        *,
        finds_strays: bool = True,
    ) -> None:
        self._node = node
        self._agenda = agenda
        self._proc = proc
        self._cpu_clock = cpu_clock
        self._finds_strays = finds_strays
        self._walk: Iterator[None] | None = None
        self._began_ns = 0
        self._found = ScanFindings()

    def walk(self, uids: frozenset[int], now_ns: int, *, stepds: bool) -> ScanFindings | None:
        """Go on for ``PIECE_NS`` of CPU time, and put down when next; returns what was found once around.

        Parameters
        ----------
        uids
            Whose processes are looked for outside of jobs; system users are left out.
        now_ns
            The time.
        stepds
            Whether to look for slurmstepds, too; that takes more time.
        """
        began_ns = self._cpu_clock()
        if self._walk is None:
            self._began_ns, self._found = now_ns, ScanFindings()
            wanted = frozenset(uid for uid in uids if uid >= FIRST_USER and self._finds_strays)
            self._walk = self._processes(wanted, stepds=stepds) if wanted or stepds else iter(())
        try:
            for number, _ in enumerate(self._walk, 1):
                if number % _CHECK_EVERY == 0 and self._cpu_clock() - began_ns >= PIECE_NS:
                    self._go_on_at(now_ns + (self._cpu_clock() - began_ns) * REST_SHARE)
                    return None
        except OSError as error:
            if not is_shortage(error):
                raise
            self._walk = None  # begun anew when there is more
            self._go_on_at(now_ns + ROUND_NS)
            return None
        self._walk = None
        rested_ns = now_ns + (self._cpu_clock() - began_ns) * REST_SHARE
        self._go_on_at(max(self._began_ns + ROUND_NS, rested_ns))
        return self._found

    def _go_on_at(self, at_ns: int) -> None:
        self._agenda.set(AgendaItem.CENSUS, at_ns, at_ns + SLACK_NS)

    def _processes(self, wanted: frozenset[int], *, stepds: bool) -> Iterator[None]:
        with os.scandir(self._proc) as entries:
            for entry in entries:
                if entry.name.isdigit():
                    self._look(int(entry.name), wanted, stepds=stepds)
                    yield

    def _look(self, pid: int, wanted: frozenset[int], *, stepds: bool) -> None:
        uid = owner(pid, self._proc)
        if uid in wanted:
            stat = read_stat(pid, self._proc)
            if stat is None or not stat.alive or self._in_job(stat):
                return
            if not is_slurm_daemon(pid, self._proc):
                self._found.strays.setdefault(uid, []).append(pid)
        elif stepds and uid in (0, os.geteuid()):
            line = command_line(pid, self._proc)
            key = step_of_title(line)
            if key is None and ("slurmstepd" not in line or _NO_STEP.fullmatch(line)):
                return
            if not is_slurmstepd(pid, self._proc) or not self._is_of_this_node(pid):
                return
            if key is None:
                self._found.unread[pid] = line[:80]
            elif self._has_task(pid):
                self._found.stepds[key] = pid

    def _has_task(self, pid: int) -> bool:
        """Whether a slurmstepd has a child that is none: a launch may take long, and so may an end."""
        try:
            children = (self._proc / str(pid) / "task" / str(pid) / "children").read_text().split()
        except OSError:  # a kernel that does not list them
            return True
        return any(not is_slurmstepd(int(child), self._proc) for child in children)

    def _in_job(self, stat: ProcStat) -> bool:
        """Whether Slurm has a process in a job; a thread that has ended is shown in no cgroup (v1)."""
        task = f"{stat.pid}/task"
        names = [f"{task}/{tid}" for tid in threads(f"{self._proc}/{task}")] if stat.state == "Z" else ()
        texts = [self._cgroup(name) for name in names or (stat.pid,)]
        return any(text is None or _IN_JOB.search(text) for text in texts)

    def _is_of_this_node(self, pid: int) -> bool:
        """Whether a slurmstepd is in a cgroup with this node's name, or in none with another's."""
        named = {one or other for one, other in _NODE_OF_CGROUP.findall(self._cgroup(pid) or "")}
        return not named or self._node in named

    def _cgroup(self, pid: int | str) -> str | None:
        try:
            return (self._proc / str(pid) / "cgroup").read_text()
        except OSError:
            return None  # it has ended


@dataclass(slots=True)
class UnseenSteps:
    """Remembers which jobs had a step, and which slurmstepd was seen without one."""

    _met: AbstractSet[int] = frozenset()
    _alone: dict[StepKey, int] = field(default_factory=dict)
    _odd: AbstractSet[str] = frozenset()

    def jobs(self, named: AbstractSet[int], found: AbstractSet[int]) -> AbstractSet[int]:
        """Return the jobs that the schedule names (``named``) and of which no step was ever ``found``."""
        self._met = (self._met & named) | found
        return named - self._met

    def lasting(self, odd: Mapping[str, str]) -> dict[str, str]:
        """Return, of what cannot be recognised (a text by a name of it), what was there before, too."""
        lasting = {name: text for name, text in odd.items() if name in self._odd}
        self._odd = odd.keys()
        return lasting

    def judge(self, jobs: AbstractSet[int], stepds: Mapping[StepKey, int]) -> dict[StepKey, int]:
        """Return the steps of such jobs that have a slurmstepd here, and its pid.

        Steps are born and end while processes are counted: only one that is there twice in a row counts.
        """
        alone = {key: pid for key, pid in stepds.items() if key.job in jobs}
        before, self._alone = self._alone, alone
        return {key: pid for key, pid in alone.items() if before.get(key) == pid}
