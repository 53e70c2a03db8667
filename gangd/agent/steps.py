"""The steps on this node, and how each is held.

The steps on this node as the agent sees them: found anew each slice, with their processes.

Looking is IO and takes up to milliseconds; it runs in the loop, outside the gate's lock.

Which jobs of this node yield when they are held, newcomers among them.

A newcomer is a job that begins on shared cores and that no slice schedule names yet. Where the site lets jobs
yield, it does so from its first processes on, for ``NEWCOMER_NS`` at most: by then the controller has named
it, or it shares its cores with no job, and then it has lost nothing.

A restless job is one that must not be frozen for now: it opted out, is dying, was stopped, launches a step,
has strays, did not freeze, or was frozen for too long. Where jobs can yield, it does in others' slices,
however it is held else. And each job of a node with several weighs as one, whatever holds it and however many
processes and sessions it has, for what is idle, new or opted out runs in others' slices. So nothing that a
job does to itself gets it more than its share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from gangd.agent.decide import STEPD_NS, StepView
from gangd.agent.hold_controller import HoldController
from gangd.freezer.holder import Step, StepKey
from gangd.freezer.membership import LEFT, NEVER_FROZEN
from gangd.freezer.procfs import WORK, is_launcher, is_slurmstepd, owner
from gangd.hold.deprioritizer import NO_CORES, BothWays
from gangd.wire.slice_schedule import SliceSchedule

BATCH_NS = 250_000_000
"""A batch script that has not called a launcher by then computes itself, as far as anybody can tell."""


@dataclass(slots=True)
class _Seen:
    step: Step
    first_ns: int
    pids: tuple[int, ...] = ()
    cleared: frozenset[int] = frozenset()  # processes known not to be slurmstepd
    has_stepd: bool = False
    begun_ns: int | None = None
    turn: int = 0


@dataclass(frozen=True, slots=True)
class Changes:
    """What a look brought.

    Attributes
    ----------
    new, gone
        Steps that were not there before, and that are no more.
    born, ended
        Jobs whose first process is there, and whose last is gone.
    launched
        Jobs whose tasks have begun to run here (``StepTable.launched``).
    """

    new: frozenset[StepKey] = frozenset()
    gone: frozenset[StepKey] = frozenset()
    born: frozenset[int] = frozenset()
    ended: frozenset[int] = frozenset()
    launched: frozenset[int] = frozenset()


@dataclass(slots=True)
class StepTable:
    """Every step of the node, since when it is known, its processes, and whether slurmstepd is among them.

    Parameters
    ----------
    gate
        Whose holder is asked.
    is_stepd
        Tells slurmstepd by its pid.
    is_launcher
        Tells a process that launches tasks by its pid.
    """

    gate: HoldController
    is_stepd: Callable[[int], bool] = is_slurmstepd
    is_launcher: Callable[[int], bool] = is_launcher
    launched: frozenset[int] = frozenset()
    _seen: dict[StepKey, _Seen] = field(default_factory=dict)
    _alive: set[int] = field(default_factory=set)
    _keys: dict[int, list[StepKey]] = field(default_factory=dict)

    def refresh(self, now_ns: int) -> Changes:
        """Look again. Nothing is noted before all was looked at: that takes time, and may raise OSError."""
        holder = self.gate.holder
        steps = self.gate.adopt(holder.look())
        found = {step.key: step for step in steps}
        looked = {key: self._check(self._seen.get(key), holder.pids(key)) for key in found}
        new = frozenset(found.keys() - self._seen.keys())
        gone = frozenset(self._seen.keys() - found.keys())
        for key in gone:
            del self._seen[key]
        for key, step in found.items():
            seen = self._seen.setdefault(key, _Seen(step, now_ns))
            seen.step = step
            seen.pids, stepds = looked[key]
            seen.cleared, seen.has_stepd = frozenset(seen.pids) - stepds, bool(stepds)
            if seen.begun_ns is None and seen.pids and not stepds:
                seen.begun_ns = now_ns
        self._keys = {}
        for key in self._seen:
            self._keys.setdefault(key.job, []).append(key)
        alive = {key.job for key, seen in self._seen.items() if seen.pids}
        born, ended, self._alive = frozenset(alive - self._alive), frozenset(self._alive - alive), alive
        launched = self._launched_at(now_ns)
        fresh, self.launched = launched - self.launched, launched
        return Changes(new, gone, born, ended, fresh)

    def is_launching(self, now_ns: int, within_ns: int) -> bool:
        """Whether a job has a step that is no older than ``within_ns``, and its tasks do not run yet."""
        return any(
            now_ns < seen.first_ns + within_ns
            for key, seen in self._seen.items()
            if key.job not in self.launched
        )

    def _launched_at(self, now_ns: int) -> frozenset[int]:
        """Jobs whose tasks run here: of a step that was launched, or of a batch script that launches nothing.

        A task is slurmstepd itself until slurmstepd lets it run its program; all of a step are released at
        once. What Slurm adopts (``extern``) is no launch. What has begun has begun while its job has steps.
        """
        launched = {key.job for key in self._seen if key.job in self.launched}
        for key, seen in self._seen.items():
            if key.job in launched or not seen.pids or seen.has_stepd or key.step == "extern":
                continue
            if key.step.isdigit() or (
                now_ns >= seen.first_ns + BATCH_NS and not any(map(self.is_launcher, seen.pids))
            ):
                launched.add(key.job)
        return frozenset(launched)

    def is_empty_since(self, from_ns: int) -> bool:
        """Whether a step that began after an instant has no tasks yet."""
        return any(
            from_ns < seen.first_ns and (seen.has_stepd or not seen.pids) for seen in self._seen.values()
        )

    def launching_at(self, now_ns: int, grace_ns: int) -> frozenset[int]:
        """Return the jobs with a step whose tasks have yet to begin, or did less than ``grace_ns`` ago.

        A step without tasks is not waited for longer than ``STEPD_NS``; what is slurmstepd is never frozen.
        """
        return frozenset(
            key.job
            for key, seen in self._seen.items()
            if seen.has_stepd
            or now_ns < (seen.first_ns + STEPD_NS if seen.begun_ns is None else seen.begun_ns + grace_ns)
        )

    def jobs(self) -> frozenset[int]:
        """Return the jobs that had a process at the last look."""
        return frozenset(self._alive)

    def jobs_with_strays(self) -> frozenset[int]:
        """Return the jobs with processes that may be theirs and must not be frozen."""
        return frozenset(key.job for key in self._seen if key.step in NEVER_FROZEN)

    def left_behind(self) -> frozenset[int]:
        """Return the jobs of which only processes are left: no slurmstepd serves them."""
        return frozenset(key.job for key in self._seen if key.step == LEFT)

    def members(self) -> frozenset[int]:
        """Return all processes that are certainly of a job."""
        return frozenset(
            pid for key, seen in self._seen.items() if key.step not in NEVER_FROZEN for pid in seen.pids
        )

    def known_jobs(self) -> frozenset[int]:
        """Return the jobs of which a step was there at the last look, empty or not."""
        return frozenset(self._keys)

    def newest_ns(self) -> int | None:
        """Return when the newest of the steps was first seen."""
        return max((seen.first_ns for seen in self._seen.values()), default=None)

    def born_ns(self) -> dict[int, int]:
        """Return when each job with a process was first seen."""
        born: dict[int, int] = {}
        for key, seen in self._seen.items():
            if key.job in self._alive:
                born[key.job] = min(seen.first_ns, born.get(key.job, seen.first_ns))
        return born

    def views(self) -> tuple[StepView, ...]:
        """Return what a decision needs of every step that has a place for tasks."""
        return tuple(
            StepView(key, seen.first_ns, seen.has_stepd)
            for key, seen in self._seen.items()
            if not seen.step.is_empty
        )

    def keys_of(self, jobs: frozenset[int]) -> list[StepKey]:
        """Return the steps of these jobs."""
        return [key for job in jobs for key in self._keys.get(job, ())]

    def has_processes(self, key: StepKey) -> bool:
        """Whether a step is there and not empty."""
        seen = self._seen.get(key)
        return seen is not None and bool(seen.pids)

    def pids_of_job(self, job: int) -> tuple[int, ...]:
        """Return the processes of a job, all steps together."""
        return tuple(pid for key in self._keys.get(job, ()) for pid in self._seen[key].pids)

    def oldest_jobs(self) -> dict[int, int]:
        """Return the users of the steps, by folders (cgroup v1) or a process of each, and a job of each."""
        found: dict[int, int] = {}
        for key, seen in self._seen.items():
            uid = owner(seen.pids[0]) if seen.step.uid is None and seen.pids else seen.step.uid
            if uid is not None:
                found[uid] = min(key.job, found.get(uid, key.job))
        return found

    def probe(self, key: StepKey, count: int) -> tuple[int, ...]:
        """Return a few processes of a step, others each time: enough to see a signal that went to all."""
        seen = self._seen.get(key)
        if seen is None or not seen.pids:
            return ()
        at = seen.turn % len(seen.pids)
        seen.turn += count
        return (seen.pids + seen.pids)[at : at + min(count, len(seen.pids))]

    def used_ns(self, job: int) -> int | None:
        """CPU time of a job; None where there is no account of it."""
        return self.gate.cpu_ns(job)

    def control_files(self) -> dict[str, StepKey]:
        """Return the control files of all steps."""
        return {path: key for key in self._seen for path in self.gate.holder.control_files(key)}

    def _check(self, seen: _Seen | None, pids: tuple[int, ...]) -> tuple[tuple[int, ...], set[int]]:
        """Return the processes of a step and those that are slurmstepd, which forbids freezing it."""
        cleared = frozenset[int]() if seen is None else seen.cleared
        stepds = set()
        WORK.pause_if_spent()
        for pid in pids:
            if pid not in cleared:
                WORK.pause_if_spent()
                if self.is_stepd(pid):
                    stepds.add(pid)
        return pids, stepds


NEWCOMER_NS = 2_000_000_000
_ALWAYS_NS = 1 << 62


class HoldModes:
    """How the jobs of one node are held.

    Parameters
    ----------
    both
        What holds them; None where no job can yield: then all are frozen.
    hold_extern
        Whether ``step_extern`` is held with its job.

    Attributes
    ----------
    yielding, by_plan
        Jobs that yield when they are held, all others are frozen; those among them that do so by a plan or as
        newcomers.
    newcomers
        Jobs that yield although no plan says so, and until when (ns): what ended jobs left behind, always.
    """

    def __init__(self, both: BothWays | None = None, *, hold_extern: bool = True) -> None:
        self.yielding: frozenset[int] = frozenset()
        self.by_plan: frozenset[int] = frozenset()
        self.newcomers: dict[int, int] = {}
        self._both = both
        self.hold_extern = hold_extern
        self._since_ns: int | None = None
        self._reach: frozenset[int] = frozenset()
        self._cores: Mapping[int, int] = NO_CORES

    def follow(
        self,
        timeline: SliceSchedule,
        number: int | None,
        table: StepTable,
        now_ns: int,
        restless: frozenset[int] = frozenset(),
    ) -> bool:
        """Take note of the plans from slice ``number`` on; whether ``gather`` has more to do.

        ``restless`` are the jobs that must not be frozen now, for reasons found here.
        """
        if self._both is None:
            return False
        self._cores = timeline.cores
        born = table.born_ns()
        if self._since_ns is None:
            self._since_ns = now_ns
        named = frozenset[int]() if number is None else timeline.ahead(number)
        exempt = timeline.exempt
        spared = frozenset((*exempt.never_freeze, *exempt.opt_out, *exempt.suspended))
        self.newcomers = {}
        if timeline.bounds is not None and timeline.bounds.newcomers_yield and len(born) > 1:
            self.newcomers = {
                job: born_ns + NEWCOMER_NS
                for job, born_ns in born.items()
                if self._since_ns < born_ns and now_ns < born_ns + NEWCOMER_NS and job not in named | spared
            }
        if len(born) > 1:
            self.newcomers |= dict.fromkeys(table.left_behind() & born.keys() - named, _ALWAYS_NS)
        planned = frozenset[int]() if number is None else timeline.yielding(number)
        before = (self.yielding, self._reach)
        self.by_plan = planned | self.newcomers.keys()
        restless = restless.union(exempt.never_freeze, exempt.opt_out).difference(exempt.suspended)
        self.yielding = self.by_plan | (restless & born.keys())
        self._both.yielding, self._both.by_plan = self.yielding, self.by_plan
        self._reach = named | self.by_plan if self.by_plan else frozenset()
        if len(born) > 1:
            self._reach |= born.keys() if self._both.yielder.weighs else self.yielding
        return before != (self.yielding, self._reach)

    def gather(self, table: StepTable) -> bool:
        """Bring the jobs within reach of yielding; whether more may have been born meanwhile."""
        if self._both is None:
            return False
        keys: dict[int, list[StepKey]] = {}
        for key in table.keys_of(self._reach):
            if self.hold_extern or key.step != "extern":
                keys.setdefault(key.job, []).append(key)
        jobs = {job: partial(self._pids, steps) for job, steps in keys.items()}
        return self._both.yielder.gather(jobs, table.gate.alone, self._cores)

    def troubles(self) -> dict[int, str]:
        """Return what could not be brought within reach since the last call, by job."""
        return {} if self._both is None else self._both.yielder.troubles()

    def _pids(self, keys: list[StepKey]) -> tuple[int, ...]:
        if self._both is None:
            return ()
        WORK.pause_if_spent()
        return tuple(pid for key in keys for pid in self._both.pids(key))
