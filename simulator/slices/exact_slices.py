"""The sharing model of exact slices, as a setting names it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from foundation.errors import UsageError
from gangd.core import CoreSettings, HoldMode, InvalidSettings
from simulator.model.jobs import SimulatedJob
from simulator.sharing import Proportional

_NS_PER_MS = 1_000_000
_NS_PER_US = 1_000


@dataclass(frozen=True, slots=True)
class ExactSlices:
    """Jobs that share cores take turns as gangd lets them.

    In a slice a job is held, or it runs; on a core that several running jobs share (one of them has just
    woken, or is too new to be in a plan) ``model`` says how fast. Backfilling looks ahead with ``model`` too.

    Parameters
    ----------
    model
        Speed on cores that are shared within a slice.
    settings
        Those of the gang scheduler.
    hold
        What a held job does: nothing, or what the owners of the slice leave of its cores.
    cost
        How long a job that shares cores takes in its own slices for a second of work: caches are cold after a
        switch, and ranks wait for nodes that switch later.
    """

    model: Proportional
    settings: CoreSettings = field(default_factory=lambda: CoreSettings(grace_ns=0, record=True))
    hold: HoldMode = HoldMode.YIELD
    cost: float = 1.0

    @classmethod
    def of(cls, model: Proportional, quantum_ms: float, hold: str = HoldMode.YIELD) -> ExactSlices:
        """Return the model with slices of ``quantum_ms`` in which jobs are held as ``hold`` says.

        Raises
        ------
        UsageError
            The gang scheduler does not take this quantum, or knows no such hold.
        """
        if hold not in {kind.value for kind in HoldMode}:
            raise UsageError(f"unknown hold {hold!r}: choose {' or '.join(HoldMode)}")
        quantum_ns = round(quantum_ms * _NS_PER_MS / _NS_PER_US) * _NS_PER_US
        try:
            return cls(model, CoreSettings(quantum_ns=quantum_ns, grace_ns=0, record=True), HoldMode(hold))
        except InvalidSettings as error:
            raise UsageError(f"--slices of {quantum_ms:g} ms are not possible: {error}") from error

    @property
    def quantum_us(self) -> int:
        """Length of a slice."""
        return self.settings.quantum_ns // _NS_PER_US

    @property
    def scale(self) -> int:
        """See ``SharingModel``."""
        return self.model.scale

    def core_speed(self, job: SimulatedJob, others: Sequence[SimulatedJob], node: int) -> Fraction:
        """See ``SharingModel``: the speed within a slice, with others that run in it."""
        return self.model.core_speed(job, others, node)
