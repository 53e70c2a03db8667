"""What the site says of jobs, and which of them must not run at the same time.

What the site says of jobs: how each is held, its weight, its quantum, and whether it is held at all.

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

Jobs that must not run at the same time on a node though their cores differ, from a table of pairs.

The core knows one reason why two gangs never share a slice: a core that both hold. So two jobs on a node
whose applications harm each other are given a *seat* there: a number that is no core, which both hold, and
no other job does. What a job runs is said by one word, ``gangd-app=NAME``; by default of Slurm's
AdminComment, which operators and job-submit plugins write and users don't.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from foundation.csv_table import LOSS_COLUMNS, csv_rows, losses_of
from foundation.errors import InputError
from foundation.one_line import one_line
from foundation.slurm import SlurmJob
from foundation.trust import read_trusted
from gangd.controller.controller_config import Config, JobRule, PairingWord
from gangd.core.pairing import SEPARATOR, PairedJob, PairLearner, Victim
from gangd.core.scheduler_events import HoldMode, NodeReport

log = logging.getLogger("gangd")
APP_WORD = "gangd-app="
_MOST_BYTES = 16 << 20
_LEARNT_NAME = re.compile(r"[A-Za-z0-9_.+@$-]{1,64}")


@dataclass(frozen=True, slots=True)
class PairRule:
    """Which applications must not run at the same time.

    Parameters
    ----------
    pairs
        As (one, other) in ascending order; both may be the same.
    word
        What names a job's application: AdminComment, the job's own comment, or the job's name.
    learns
        Whether losses are learnt, and decide in the place of ``pairs``.
    threshold, explore
        See ``PairLearner``.
    losses
        What the table says, by victim and opponent.
    """

    pairs: frozenset[tuple[str, str]] = frozenset()
    word: PairingWord = "admin_comment"
    learns: bool = False
    threshold: float = 0.05
    explore: float = 0.1
    losses: Mapping[tuple[str, str], float] = field(default_factory=dict, compare=False)

    @property
    def is_active(self) -> bool:
        """Whether it may have jobs alternate."""
        return self.learns or bool(self.pairs)

    def application(self, job: SlurmJob) -> str | None:
        """Return what a job runs; None where no field says it, or two fields disagree."""
        if not self.is_active:
            return None
        if self.word == "name":
            return job.name
        text = (job.comment if self.word == "comment" else job.admin_comment) or ""
        said = {word for word in text.replace(",", " ").split() if word.startswith(APP_WORD)}
        return said.pop().removeprefix(APP_WORD) if len(said) == 1 else None

    def paired(self, job: SlurmJob) -> PairedJob | None:
        """Return what is learnt from a job, and of it; None for names that are none of the learner's."""
        name = self.application(job)
        if name is None or not all(map(_LEARNT_NAME.fullmatch, (name, job.user))):
            return None
        victim = Victim(job.user, name, sum(len(held.cores) for held in job.cores))
        called = name if self.word == "admin_comment" else f"{job.user}{SEPARATOR}{name}"
        return PairedJob(job.job_id, job.start_time or 0, victim, called)

    def is_harmful(self, one: str, other: str) -> bool:
        """Whether one of the two loses more than it may to the other."""
        return (min(one, other), max(one, other)) in self.pairs


def read_pairs(path: Path, threshold: float, word: PairingWord) -> PairRule:
    """Read a table of losses (CSV ``victim,opponent,e_v``), as ``osub predict matrix --csv`` writes it.

    Parameters
    ----------
    path
        A file that only root or the user could have written.
    threshold
        E_v above which a victim is harmed.
    word
        See ``PairRule``.

    Raises
    ------
    InputError
        It cannot be read, or is no such table.
    TrustError
        Another user could have written it.
    """
    try:
        raw = read_trusted(path)
    except OSError as error:
        raise InputError(f"cannot read the table of pairs {path}: {one_line(str(error))}") from error
    rows = csv_rows(path, raw, LOSS_COLUMNS, None, most_bytes=_MOST_BYTES)
    losses: dict[tuple[str, str], float] = {}
    for one, other, loss in losses_of(rows):  # of two rows of a pair the larger loss counts
        losses[one, other] = max(loss, losses.get((one, other), loss))
    harmful = {(min(pair), max(pair)) for pair, loss in losses.items() if loss > threshold}
    return PairRule(frozenset(harmful), word, threshold=threshold, losses=losses)


Seat = Mapping[str, tuple[int, ...]]
"""By node, the numbers of a job's seats there, from 0."""


HELD_SLICES, MOST_YIELDED = 20, 2
"""Of so many slices in which a job is held on a node it may yield in so many, once it has been launched."""


class _Seated(NamedTuple):
    job: int
    name: str
    paired: PairedJob | None
    nodes: tuple[str, ...]


@dataclass(slots=True)
class _HeldSlices:
    """The slices of late in which a job was held on a node; those of its launch do not count."""

    held: int = -HELD_SLICES
    yielded: int = 0

    def is_too_free(self, *, yielded: bool) -> bool:
        """Count a slice; whether the job yielded in too many."""
        if self.held == HELD_SLICES:
            self.held = self.yielded = 0
        self.held += 1
        self.yielded += yielded and self.held > 0
        return self.yielded > MOST_YIELDED


@dataclass(slots=True)
class Seats:
    """Gives pairs of jobs seats on their nodes; a pair keeps its seat for as long as both are there.

    A job that time and again must not be frozen, and so runs on in the others' slices, has no seat any more:
    it would have its core all of the time, and those that keep to their slices would not.

    Attributes
    ----------
    learner
        Decides where the rule learns; of jobs with names that are not learnt the table does.
    """

    learner: PairLearner | None = None
    _rule: PairRule = field(default_factory=PairRule)
    _taken: dict[str, dict[tuple[int, int], int]] = field(default_factory=dict)
    _known: Sequence[_Seated] = ()
    _version: int | None = None
    _seats: Mapping[int, Seat] = field(default_factory=dict)
    _held: dict[tuple[int, str], _HeldSlices] = field(default_factory=dict)
    _unheld: set[int] = field(default_factory=set)

    def set_rule(self, rule: PairRule) -> None:
        """Apply another rule from the next call on."""
        self._rule = rule
        self._known = ()
        self._seats = {}
        self._taken = {}

    def of(self, jobs: Iterable[SlurmJob]) -> Mapping[int, Seat]:
        """Return the seats of each job that must not run together with another one that holds cores."""
        if not self._rule.is_active:
            return {}
        version = None if self.learner is None else self.learner.version
        known = [
            _Seated(job.job_id, name, None if version is None else self._rule.paired(job), job.nodes)
            for job in jobs
            if job.cores and (name := self._rule.application(job)) is not None
        ]
        if known != self._known or version != self._version:
            self._unheld.intersection_update(seated.job for seated in known)
            self._known, self._version, self._seats = known, version, self._assign(known)
            self._held = {key: count for key, count in self._held.items() if key[0] in self._seats}
        return self._seats

    def report(self, report: NodeReport) -> None:
        """Count the slices in which jobs with a seat were held, and yielded instead of being frozen."""
        for use in report.slices if self._seats else ():
            for job in {*use.held, *use.yielding} & self._seats.keys():
                held = self._held.setdefault((job, report.node), _HeldSlices())
                if held.is_too_free(yielded=job in use.yielding) and job not in self._unheld:
                    log.warning(
                        "job %d runs on in others' slices on %s: it alternates no more", job, report.node
                    )
                    self._unheld.add(job)
                    self._known = ()

    def most(self, node: str) -> int:
        """Return how many seat numbers a node needs."""
        return max(self._taken.get(node, {}).values(), default=-1) + 1

    def _alternate(self, one: _Seated, other: _Seated) -> bool:
        if self.learner is None or one.paired is None or other.paired is None:
            return self._rule.is_harmful(one.name, other.name)
        return self.learner.alternate(one.paired, other.paired)

    def _assign(self, known: Sequence[_Seated]) -> dict[int, dict[str, tuple[int, ...]]]:
        on_node: dict[str, list[_Seated]] = {}
        for seated in known:
            for node in seated.nodes:
                on_node.setdefault(node, []).append(seated)
        taken: dict[str, dict[tuple[int, int], int]] = {}
        seats: dict[int, dict[str, list[int]]] = {}
        for node, here in on_node.items():
            pairs = [
                (min(one.job, other.job), max(one.job, other.job))
                for one, other in combinations(here, 2)
                if self._unheld.isdisjoint((one.job, other.job)) and self._alternate(one, other)
            ]
            before = self._taken.get(node, {})
            kept = {pair: before[pair] for pair in pairs if pair in before}
            free = (number for number in range(len(pairs)) if number not in set(kept.values()))
            for pair in pairs:
                number = kept[pair] if pair in kept else next(free)
                taken.setdefault(node, {})[pair] = number
                for job in pair:
                    seats.setdefault(job, {}).setdefault(node, []).append(number)
        self._taken = taken
        return {
            job: {node: tuple(sorted(numbers)) for node, numbers in by_node.items()}
            for job, by_node in seats.items()
        }


WEIGHT_WORD = "gangd-weight="
HOLD_WORD = "gangd-hold="
LEAST_WEIGHT, MOST_WEIGHT = 1 / 1024, 1024.0


@dataclass(frozen=True, slots=True)
class JobRules:
    """Rules by name of partition, QOS, account and user."""

    partitions: Mapping[str, JobRule] = field(default_factory=dict)
    qos: Mapping[str, JobRule] = field(default_factory=dict)
    accounts: Mapping[str, JobRule] = field(default_factory=dict)
    users: Mapping[str, JobRule] = field(default_factory=dict)

    def of(self, job: SlurmJob) -> JobRule:
        """Return what is said of a job, by the precedence at the head of this module."""
        said: dict[str, Any] = {}
        for rules, name in (
            (self.partitions, job.partition),
            (self.qos, job.qos),
            (self.accounts, job.account),
            (self.users, job.user),
        ):
            if name is not None and name in rules:
                rule = msgspec.structs.asdict(rules[name])
                said |= {what: value for what, value in rule.items() if value is not None}
        return JobRule(**said)


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
    may_freeze
        Whether slices that tune themselves may freeze jobs of which neither a rule nor the job says how they
        are held.
    pairing
        Which applications must not run at the same time on a node.
    """

    rules: JobRules = field(default_factory=JobRules)
    most_job_weight: float = 1.0
    opt_out_comments: frozenset[str] = frozenset()
    opt_out_features: frozenset[str] = frozenset()
    hold: HoldMode = HoldMode.FREEZE
    job_holds: frozenset[HoldMode] = frozenset()
    may_freeze: bool = False
    pairing: PairRule = field(default_factory=PairRule)

    def way(self, job: SlurmJob) -> HoldMode:
        """Return how a job is held: as it asks, if it may; of two words that it may say, none counts."""
        return self._said(job) or self.hold

    def tunes(self, job: SlurmJob) -> bool:
        """Whether slices that tune themselves may freeze a job."""
        return self.may_freeze and self._said(job) is None

    def _said(self, job: SlurmJob) -> HoldMode | None:
        asked = {hold for hold in self.job_holds if HOLD_WORD + hold.value in _words(job.comment)}
        return asked.pop() if len(asked) == 1 else self.rules.of(job).hold

    def weight(self, job: SlurmJob) -> float:
        """Return the weight of a job: by the rules, times what it asks for as far as it may."""
        ruled = self.rules.of(job).weight
        weight = 1.0 if ruled is None else ruled
        asked = [word for word in _words(job.comment) if word.startswith(WEIGHT_WORD)]
        if asked:  # twice the word gets no more than once
            factors = (_factor(word.removeprefix(WEIGHT_WORD)) for word in asked)
            weight *= min(prod(factors), self.most_job_weight)
        return min(max(weight, LEAST_WEIGHT), MOST_WEIGHT)

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


def _words(comment: str | None) -> set[str]:
    return set((comment or "").replace(",", " ").split())


def _factor(text: str) -> float:
    """Return the number that a job asks for; 1 for what is none."""
    try:
        factor = float(text)
    except ValueError:
        return 1.0
    return factor if 0 < factor < float("inf") else 1.0


def policy_of(config: Config) -> Policy:
    """Return what a configuration says; raises ``OsubError`` where its table of losses cannot be read."""
    comments, features = frozenset(config.opt_out_comments), frozenset(config.opt_out_features)
    return Policy(
        rules=JobRules(*config.rules()),
        most_job_weight=config.most_job_weight,
        opt_out_comments=comments,
        opt_out_features=features,
        hold=HoldMode(config.hold),
        job_holds=frozenset(map(HoldMode, config.job_holds)),
        may_freeze=config.tune and "freeze" in config.tune_holds,
        pairing=replace(
            PairRule(word=config.pairing_word)
            if config.pairing is None
            else read_pairs(config.pairing, config.pairing_threshold, config.pairing_word),
            learns=config.pairing_learn,
            threshold=config.pairing_threshold,
            explore=config.pairing_explore,
        ),
    )
