"""Which jobs of this node yield when they are held, newcomers among them.

A newcomer is a job that begins on shared cores and that no slice schedule names yet. Where the site lets jobs
yield, it does so from its first processes on, for ``NEWCOMER_NS`` at most: by then the controller has named
it, or it shares its cores with no job, and then it has lost nothing.

A restless job is one that must not be frozen for now: it opted out, is dying, was stopped, launches a step,
did not freeze, or was frozen for too long. Where jobs can yield, it does in others' slices, however it is
held else. And each job of a node with several weighs as one, whatever holds it and however many processes and
sessions it has, for what is idle, new or opted out runs in others' slices. So nothing that a job does to
itself gets it more than its share.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from gangd.agent.sight.steps import StepTable
from gangd.freezer.holder import StepKey
from gangd.freezer.procfs import WORK
from gangd.hold.both import BothWays
from gangd.hold.deprioritizer import NO_CORES
from gangd.wire.slice_schedule import SliceSchedule

NEWCOMER_NS = 2_000_000_000


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
        Jobs that yield although no plan says so, and until when (ns).
    """

    def __init__(self, both: BothWays | None = None, *, hold_extern: bool = True) -> None:
        self.yielding: frozenset[int] = frozenset()
        self.by_plan: frozenset[int] = frozenset()
        self.newcomers: Mapping[int, int] = {}
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
        return self._both.gather(jobs, table.gate.alone, self._cores)

    def troubles(self) -> dict[int, str]:
        """Return what could not be brought within reach since the last call, by job."""
        return {} if self._both is None else self._both.yielder.troubles()

    def _pids(self, keys: list[StepKey]) -> tuple[int, ...]:
        if self._both is None:
            return ()
        WORK.pause_if_spent()
        return tuple(pid for key in keys for pid in self._both.pids(key))
