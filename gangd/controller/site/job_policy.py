"""What the site says of jobs: how each is held, its weight, its quantum, and whether it is held at all.

**Precedence.** A job is in a partition, in a QOS, of an account, and of a user. Each of these may have a
rule, and a rule says what it likes: hold, weight, quantum, opt-out, whether a job may opt out. For each of
these by itself the rule counts that is nearest to the person and says something of it: the user's, else the
account's, else the QOS's, else the partition's, else what holds for all. Weights of different rules are never
multiplied.

What the job asks for itself (``gangd-hold=``, ``gangd-weight=``, ``gangd=off`` in its comment) comes after
that, as far as the site lets it: a job opts out only where a rule says that it may. An operator's orders at
run time come last and win.

An account's rule is for jobs of that very account, not of those below it. Where Slurm does not enforce
accounts a user can name any: the preflight warns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

from foundation.slurm import SlurmJob
from gangd.controller.site.kept_apart import PairRule
from gangd.core import HoldMode

WEIGHT_WORD = "gangd-weight="
HOLD_WORD = "gangd-hold="
LEAST_WEIGHT, MOST_WEIGHT = 1 / 1024, 1024.0


@dataclass(frozen=True, slots=True)
class JobRule:
    """What is said of some jobs; None where nothing is."""

    hold: HoldMode | None = None
    weight: float | None = None
    quantum_ns: int | None = None
    opt_out: bool | None = None
    may_opt_out: bool | None = None


_SILENT = JobRule()


@dataclass(frozen=True, slots=True)
class JobRules:
    """Rules by name of partition, QOS, account and user."""

    partitions: Mapping[str, JobRule] = field(default_factory=dict)
    qos: Mapping[str, JobRule] = field(default_factory=dict)
    accounts: Mapping[str, JobRule] = field(default_factory=dict)
    users: Mapping[str, JobRule] = field(default_factory=dict)

    def of(self, job: SlurmJob) -> JobRule:
        """Return what is said of a job, by the precedence at the head of this module."""
        found = [
            rules[name]
            for rules, name in (
                (self.users, job.user),
                (self.accounts, job.account),
                (self.qos, job.qos),
                (self.partitions, job.partition),
            )
            if name is not None and name in rules
        ]
        if not found:
            return _SILENT
        return JobRule(
            hold=next((one.hold for one in found if one.hold is not None), None),
            weight=next((one.weight for one in found if one.weight is not None), None),
            quantum_ns=next((one.quantum_ns for one in found if one.quantum_ns is not None), None),
            opt_out=next((one.opt_out for one in found if one.opt_out is not None), None),
            may_opt_out=next((one.may_opt_out for one in found if one.may_opt_out is not None), None),
        )


@dataclass(frozen=True, slots=True)
class Policy:
    """What the configuration says of jobs.

    Attributes
    ----------
    rules
        By partition, QOS, account and user.
    most_job_weight
        Factor on its weight that a job may ask for at most (``gangd-weight=`` in its comment).
    opt_out_comments, opt_out_features
        Words in the comment, and node features asked for, by which a job opts out where a rule lets it.
    hold
        How jobs are held of which no rule says it.
    job_holds
        What a job may ask for (``gangd-hold=`` in its comment).
    pairing
        Which applications must not run at the same time on a node.
    """

    rules: JobRules = field(default_factory=JobRules)
    most_job_weight: float = 1.0
    opt_out_comments: frozenset[str] = frozenset()
    opt_out_features: frozenset[str] = frozenset()
    hold: HoldMode = HoldMode.FREEZE
    job_holds: frozenset[HoldMode] = frozenset()
    pairing: PairRule = field(default_factory=PairRule)

    def way(self, job: SlurmJob) -> HoldMode:
        """Return how a job is held: as it asks, if it may; of two words that it may say, none counts."""
        asked = {hold for hold in self.job_holds if HOLD_WORD + hold.value in _words(job.comment)}
        return asked.pop() if len(asked) == 1 else self.rules.of(job).hold or self.hold

    def weight(self, job: SlurmJob) -> float:
        """Return the weight of a job: by the rules, times what it asks for as far as it may."""
        ruled = self.rules.of(job).weight
        weight = 1.0 if ruled is None else ruled
        asked = [word for word in _words(job.comment) if word.startswith(WEIGHT_WORD)]
        if asked:  # twice the word gets no more than once
            factors = (_factor(word.removeprefix(WEIGHT_WORD)) for word in asked)
            weight *= min(prod(factors), self.most_job_weight)
        return within_bounds(weight)

    def quantum_ns(self, job: SlurmJob) -> int | None:
        """Return for how long a job runs at a stretch; None for one slice."""
        return self.rules.of(job).quantum_ns

    def opts_out(self, job: SlurmJob) -> bool:
        """Whether a job must not be held: by the rules, or as it asks where they let it."""
        rule = self.rules.of(job)
        return bool(rule.opt_out or (rule.may_opt_out and self._asks_out(job)))

    def refuses(self, job: SlurmJob) -> bool:
        """Whether a job asks to opt out and may not."""
        rule = self.rules.of(job)
        return not (rule.opt_out or rule.may_opt_out) and self._asks_out(job)

    def _asks_out(self, job: SlurmJob) -> bool:
        comment = _words(job.comment)
        features = set((job.features or "").replace("&", " ").replace("|", " ").replace(",", " ").split())
        return bool(comment & self.opt_out_comments or features & self.opt_out_features)


def within_bounds(weight: float) -> float:
    """Return the possible weight that is nearest."""
    return min(max(weight, LEAST_WEIGHT), MOST_WEIGHT)


def _words(comment: str | None) -> set[str]:
    return set((comment or "").replace(",", " ").split())


def _factor(text: str) -> float:
    """Return the number that a job asks for; 1 for what is none."""
    try:
        factor = float(text)
    except ValueError:
        return 1.0
    return factor if 0 < factor < float("inf") else 1.0
