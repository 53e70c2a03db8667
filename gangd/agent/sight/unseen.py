"""Jobs that run here and of which no step was ever found: Slurm keeps them where we do not look."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from gangd.freezer.holder import StepKey


@dataclass(slots=True)
class Unseen:
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
