"""The steps on this node as the agent sees them: found anew each slice, with their processes.

Looking is IO and takes up to milliseconds; it runs in the loop, outside the gate's lock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from gangd.agent.decide import StepView
from gangd.agent.gate import Gate
from gangd.freezer.model import Step, StepKey
from gangd.freezer.procfs import is_slurmstepd


@dataclass(slots=True)
class _Seen:
    step: Step
    first_ns: int
    pids: tuple[int, ...] = ()
    cleared: frozenset[int] = frozenset()  # processes known not to be slurmstepd
    has_stepd: bool = False
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
    """

    new: frozenset[StepKey] = frozenset()
    gone: frozenset[StepKey] = frozenset()
    born: frozenset[int] = frozenset()
    ended: frozenset[int] = frozenset()


@dataclass(slots=True)
class StepTable:
    """Every step of the node, since when it is known, its processes, and whether slurmstepd is among them.

    Parameters
    ----------
    gate
        Whose holder is asked.
    is_stepd
        Tells slurmstepd by its pid.
    """

    gate: Gate
    is_stepd: Callable[[int], bool] = is_slurmstepd
    _seen: dict[StepKey, _Seen] = field(default_factory=dict)
    _alive: set[int] = field(default_factory=set)

    def refresh(self, now_ns: int) -> Changes:
        """Look again."""
        holder = self.gate.holder
        steps = self.gate.adopt(holder.look())
        found = {step.key: step for step in steps}
        new = frozenset(found.keys() - self._seen.keys())
        gone = frozenset(self._seen.keys() - found.keys())
        for key in gone:
            del self._seen[key]
        for key, step in found.items():
            seen = self._seen.setdefault(key, _Seen(step, now_ns))
            seen.step = step
            self._check(seen, holder.pids(key))
        alive = {key.job for key, seen in self._seen.items() if seen.pids}
        born, ended, self._alive = frozenset(alive - self._alive), frozenset(self._alive - alive), alive
        return Changes(new, gone, born, ended)

    def jobs(self) -> frozenset[int]:
        """Return the jobs that had a process at the last look."""
        return frozenset(self._alive)

    def newest_ns(self) -> int | None:
        """Return when the newest of the steps was first seen."""
        return max((seen.first_ns for seen in self._seen.values()), default=None)

    def views(self) -> tuple[StepView, ...]:
        """Return what a decision needs of every step."""
        return tuple(StepView(key, seen.first_ns, seen.has_stepd) for key, seen in self._seen.items())

    def keys_of(self, jobs: frozenset[int]) -> list[StepKey]:
        """Return the steps of these jobs."""
        return [key for key in self._seen if key.job in jobs]

    def has_processes(self, key: StepKey) -> bool:
        """Whether a step is there and not empty."""
        seen = self._seen.get(key)
        return seen is not None and bool(seen.pids)

    def pids_of_job(self, job: int) -> tuple[int, ...]:
        """Return the processes of a job, all steps together."""
        return tuple(pid for key, seen in self._seen.items() if key.job == job for pid in seen.pids)

    def uids(self) -> frozenset[int]:
        """Return the users of the steps, where they are known."""
        return frozenset(seen.step.uid for seen in self._seen.values() if seen.step.uid is not None)

    def probe(self, key: StepKey, count: int) -> tuple[int, ...]:
        """Return a few processes of a step, others each time: enough to see a signal that went to all."""
        seen = self._seen.get(key)
        if seen is None or not seen.pids:
            return ()
        at = seen.turn % len(seen.pids)
        seen.turn += count
        return (seen.pids + seen.pids)[at : at + min(count, len(seen.pids))]

    def control_files(self) -> dict[str, StepKey]:
        """Return the control files of all steps."""
        return {path: key for key in self._seen for path in self.gate.holder.control_files(key)}

    def _check(self, seen: _Seen, pids: tuple[int, ...]) -> None:
        """Look at the processes that are new in a step; a slurmstepd there forbids freezing it."""
        seen.pids = pids
        now = frozenset(pids)
        fresh = now - seen.cleared
        stepds = {pid for pid in fresh if self.is_stepd(pid)} if fresh else set()
        seen.cleared = now - stepds
        seen.has_stepd = bool(stepds)
