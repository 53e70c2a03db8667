"""Which steps to hold now: pure, a function of what is known at one instant.

Rules, each with its name in ``Why``; a step is held if its job is planned to be held and none applies:

* ``CLOSED``: nothing is held without lease, trusted clock and guardian, nor while the operator says so.
* ``DYING``: a job with SIGTERM or SIGKILL on its way is not held for now, or it could not die.
* ``SLURMSTEPD``: a step that has slurmstepd among its processes is never held; Slurm would hang.
* ``EXTERNAL``: another process froze or thawed the step; the agent leaves it alone. Other steps of that job
  are not frozen either; those that we hold are kept for ``SUSPEND_NS``, while Slurm makes its round, and then
  thawed.
* ``LAUNCHING``: a step younger than the launch grace runs, so that its launch can complete, and one whose
  tasks are slurmstepd still.
* ``STUCK``: its freeze did not take effect in this slice; better all of it runs than a part.
* ``LONG``: it has been held for as long as anything may be (peers and Slurm's own time-outs).
* ``EXTERN``: the site lets ``step_extern`` run.
* ``STRAY``: processes that are likely a job's, but not certainly, are never frozen.

For a job that yields only ``CLOSED`` and ``EXTERN`` count: it does not stand still, so it can be launched,
suspended and killed while it is held, and held for as long as it likes. Newcomers are held until the plan
names them. Where jobs can yield, one to which any other rule applies does (``hold_modes``): then no rule
gives a job more than what the owner of the slice leaves.

Every step that we froze and that the verdict does not hold is to be thawed, unless another process has it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from gangd.freezer.holder import StepKey
from gangd.freezer.membership import NEVER_FROZEN

SUSPEND_NS = 3_000_000_000
STEPD_NS = 3_000_000_000
"""A task is slurmstepd until it runs its program: only in a step that is older is it the daemon itself."""


class Why(enum.Enum):
    """Why a step that is planned to be held is not."""

    CLOSED = "closed"
    DYING = "dying"
    SLURMSTEPD = "slurmstepd"
    EXTERNAL = "external"
    LAUNCHING = "launching"
    STUCK = "stuck"
    LONG = "long"
    EXTERN = "extern"
    STRAY = "stray"


@dataclass(frozen=True, slots=True)
class StepView:
    """What matters about a step: when it was first seen, and whether slurmstepd is in it."""

    key: StepKey
    first_seen_ns: int
    has_stepd: bool = False


@dataclass(frozen=True, slots=True)
class HoldLimits:
    """How holding is bounded: the times (ns) as the controller's plan says, and the site's choice here."""

    grace_ns: int = 200_000_000
    longest_ns: int = 5_000_000_000
    hold_extern: bool = True


@dataclass(frozen=True, slots=True)
class Situation:
    """Everything that a verdict depends on.

    Attributes
    ----------
    now_ns
        The instant for which to decide, on the agent's clock.
    open
        Whether anything may be held at all.
    planned
        Jobs that the schedule holds now, exemptions applied.
    steps
        All steps on this node.
    ours
        Steps that we hold now, and since when.
    dying
        Jobs for which a deadly signal waits or waited a while ago.
    external
        Steps that another process froze or thawed, and since when.
    stuck
        Steps whose freeze was given up in this slice.
    yielding
        Jobs that yield when they are held.
    newcomers
        Those among them that are held although no plan says so, and until when.
    """

    now_ns: int
    open: bool
    planned: frozenset[int]
    steps: tuple[StepView, ...]
    ours: Mapping[StepKey, int] = field(default_factory=dict)
    dying: frozenset[int] = frozenset()
    external: Mapping[StepKey, int] = field(default_factory=dict)
    stuck: frozenset[StepKey] = frozenset()
    yielding: frozenset[int] = frozenset()
    newcomers: Mapping[int, int] = field(default_factory=dict)

    def is_new(self, job: int) -> bool:
        """Whether a job is held as a newcomer."""
        until_ns = self.newcomers.get(job)
        return until_ns is not None and self.now_ns < until_ns


@dataclass(frozen=True, slots=True)
class HoldDecision:
    """Steps to hold; why others of planned jobs are not held; when to decide again though nothing happens."""

    hold: frozenset[StepKey]
    spared: Mapping[StepKey, Why]
    again_ns: int | None = None


def decide(situation: Situation, limits: HoldLimits) -> HoldDecision:
    """Apply the rules above to every step."""
    strange_jobs: dict[int, int] = {}
    for key, since_ns in situation.external.items():
        strange_jobs[key.job] = min(since_ns, strange_jobs.get(key.job, since_ns))
    hold: set[StepKey] = set()
    spared: dict[StepKey, Why] = {}
    times: list[int] = []
    for step in situation.steps:
        if step.key.job in situation.yielding:
            why = _spare_yielding(step, situation, limits)
            if situation.is_new(step.key.job):
                times.append(situation.newcomers[step.key.job])
            elif step.key.job not in situation.planned:
                continue
            if why is None:
                hold.add(step.key)
            else:
                spared[step.key] = why
            continue
        strange_ns = strange_jobs.get(step.key.job)
        if strange_ns is not None:
            until_ns = strange_ns + SUSPEND_NS
            kept = step.key in situation.ours and step.key not in situation.external
            if (
                kept
                and situation.open
                and step.key.job not in situation.dying
                and situation.now_ns < until_ns
            ):
                hold.add(step.key)
                times.append(until_ns)
            else:
                spared[step.key] = Why.EXTERNAL
            continue
        if step.key.job not in situation.planned:
            continue
        why, again_ns = _spare(step, situation, limits)
        if why is None:
            hold.add(step.key)
        else:
            spared[step.key] = why
        if again_ns is not None:
            times.append(again_ns)
    return HoldDecision(frozenset(hold), spared, min(times, default=None))


def _spare_yielding(step: StepView, situation: Situation, limits: HoldLimits) -> Why | None:
    """Why a step whose job yields is not held, if it is not."""
    if not situation.open:
        return Why.CLOSED
    if step.key.step == "extern" and not limits.hold_extern:
        return Why.EXTERN
    return None


def _spare(step: StepView, situation: Situation, limits: HoldLimits) -> tuple[Why | None, int | None]:
    """Why the step is not held, if it is not, and when that may change by itself."""
    since_ns = situation.ours.get(step.key)
    grace_ends_ns = step.first_seen_ns + limits.grace_ns
    why: Why | None = None
    again_ns: int | None = None
    if not situation.open:
        why = Why.CLOSED
    elif step.key.job in situation.dying:
        why = Why.DYING
    elif step.has_stepd and situation.now_ns < step.first_seen_ns + STEPD_NS:
        why, again_ns = Why.LAUNCHING, step.first_seen_ns + STEPD_NS
    elif step.has_stepd:
        why = Why.SLURMSTEPD
    elif step.key.step in NEVER_FROZEN:
        why = Why.STRAY
    elif step.key in situation.stuck:
        why = Why.STUCK
    elif step.key.step == "extern" and not limits.hold_extern:
        why = Why.EXTERN
    elif situation.now_ns < grace_ends_ns:
        why, again_ns = Why.LAUNCHING, grace_ends_ns
    elif since_ns is not None:
        again_ns = since_ns + limits.longest_ns
        if situation.now_ns >= again_ns:
            why, again_ns = Why.LONG, None
    return why, again_ns
