"""What applications lose to co-located ones, learnt from CPU time, and which pairs therefore alternate.

The same work costs a job more CPU time when a co-located job takes caches and memory bandwidth from it. So of
the jobs of one user, one application and one number of cores, the logarithm of the CPU time until the end is
a constant, plus for each opponent a *log loss* times the share of its CPU time in which the job ran together
with it. The posterior of a Bayesian regression (Gaussian prior, noise from the residuals; Gelman et al.,
Bayesian Data Analysis, chapter 14) says what is known, and how surely. Where agents can count instructions,
``observe`` takes CPU time an instruction in the place of CPU time.

Two jobs alternate where one of the two loses more than ``threshold`` to the other by what is expected. For a
share of the pairs of jobs, ``explore``, losses are drawn from their posteriors instead (Thompson sampling;
Russo et al., A Tutorial on Thompson Sampling, 2018), by a hash of a seed and the two job ids: so what is not
clear is tried, and what is clear is not.

An entry is learnt from its own user's jobs alone, and a name that users write themselves says only what *his*
job does to others: it has its user in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import product
from math import exp, isfinite, log, log1p, sqrt
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gangd.core.scheduler_events import NodeReport

MOST_VICTIMS, MOST_OF_USER, MOST_OPPONENTS = 512, 32, 32
"""Entries in all, of one user, and opponents in one; those that were not used for longest go."""
MOST_IN_TABLE = 100
"""Applications in the table for placements."""
LEAST_CPU_S = 2.0
"""A job that used less says nothing: agents look about once a second."""
_MEMORY = 0.98  # of an older job at each newer one
_NOISE, _NOISE_JOBS = 0.05, 3.0  # of the logarithm of CPU time, as if so many jobs had shown it
_BASE_SD, _LOSS_SD = 10.0, 0.1
_LOOSE = 0.01
_MOST_SUM = 1e9
_WIDTH = 1.96
_NORMAL = NormalDist()
_LARGEST = 0.95
SEPARATOR = ":"


class Victim(NamedTuple):
    """Whose jobs are compared with each other: equal work is expected of them."""

    user: str
    application: str
    cores: int


class PairedJob(NamedTuple):
    """A job of which it is known what it runs.

    ``opponent`` is what it is called by those that it may harm: its application, or ``USER:APPLICATION``
    where users say themselves what they run.
    """

    job: int
    start_s: int
    victim: Victim
    opponent: str


class PairLoss(NamedTuple):
    """What a victim loses to an opponent, in shares of its speed, its 95% interval, from how many jobs."""

    loss: float
    low: float
    high: float
    jobs: float


@dataclass(frozen=True, slots=True)
class KnownVictim:
    """What is kept of a victim: sums over its jobs, older ones weighted less.

    Attributes
    ----------
    opponents
        Names, in the order of the columns that follow the constant's.
    gram
        Products of columns, the upper triangle by rows.
    response
        Products of each column with the logarithm of CPU time (s).
    square
        Sum of its squares.
    """

    user: str
    application: str
    cores: int
    opponents: tuple[str, ...]
    gram: tuple[float, ...]
    response: tuple[float, ...]
    square: float


@dataclass(slots=True, eq=False)
class _Sums:
    opponents: list[str] = field(default_factory=list)
    gram: NDArray[np.float64] = field(default_factory=lambda: np.zeros((1, 1)))
    response: NDArray[np.float64] = field(default_factory=lambda: np.zeros(1))
    square: float = 0.0
    posterior: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None

    def column(self, opponent: str) -> int:
        """Return the column of an opponent, which may be new; the least seen one makes place for it."""
        if opponent not in self.opponents:
            if len(self.opponents) == MOST_OPPONENTS:
                least = 1 + int(np.argmin(np.diag(self.gram)[1:]))
                del self.opponents[least - 1]
                self.gram = np.delete(np.delete(self.gram, least, 0), least, 1)
                self.response = np.delete(self.response, least)
            self.opponents.append(opponent)
            self.gram = np.pad(self.gram, (0, 1))
            self.response = np.pad(self.response, (0, 1))
        return self.opponents.index(opponent) + 1


class PairLearner:
    """Learns losses by pair, and decides which jobs alternate. Deterministic.

    Parameters
    ----------
    seed
        Of what is tried.

    Attributes
    ----------
    prior
        Losses by victim's and opponent's application, where a table says them; of no other pair is anything
        expected.
    threshold
        Loss beyond which a victim is harmed.
    explore
        Share of the pairs of jobs for which losses are drawn: of no more the opposite is tried.
    version
        Counts what was learnt: decisions are as they were while it is.
    """

    def __init__(self, seed: int, threshold: float = 0.05, explore: float = 0.1) -> None:
        self.seed = seed
        self.prior: Mapping[tuple[str, str], float] = {}
        self.threshold = threshold
        self.explore = explore
        self.version = 0
        self._victims: dict[Victim, _Sums] = {}

    def set_policy(self, prior: Mapping[tuple[str, str], float], threshold: float, explore: float) -> None:
        """Apply another table, threshold and share of trials from now on."""
        self.prior, self.threshold, self.explore = dict(prior), threshold, explore
        for sums in self._victims.values():
            sums.posterior = None
        self.version += 1

    def observe(self, victim: Victim, cpu_s: float, exposure: Mapping[str, float]) -> None:
        """Learn from a job that has ended well.

        Parameters
        ----------
        cpu_s
            CPU time that it used in all, seconds; below ``LEAST_CPU_S`` it says nothing.
        exposure
            Share of that in which an opponent ran, too, by opponent.
        """
        if not (cpu_s >= LEAST_CPU_S and isfinite(cpu_s)):
            return
        sums = self._victims.pop(victim, None) or _Sums()
        self._victims[victim] = sums  # the one used last is last
        self._evict(victim.user)
        shares = {name: share for name, share in exposure.items() if share > 0}
        bent = {name: _bent(shares[name], self.loss(victim, name).loss) for name in shares}
        for name in sorted(shares, key=shares.__getitem__)[-MOST_OPPONENTS:]:
            sums.column(name)
        row = np.array([1.0, *(bent.get(name, 0.0) for name in sums.opponents)])
        value = log(cpu_s)
        sums.gram = _MEMORY * sums.gram + np.outer(row, row)
        sums.response = _MEMORY * sums.response + row * value
        sums.square = _MEMORY * sums.square + value * value
        sums.posterior = None
        self.version += 1

    def loss(self, victim: Victim, opponent: str) -> PairLoss:
        """Return what is known, or expected, of a victim's loss to an opponent."""
        mean, deviation, jobs = self._log_loss(victim, opponent)
        low, high = (mean + sign * _WIDTH * deviation for sign in (-1, 1))
        return PairLoss(1 - exp(-mean), 1 - exp(-low), 1 - exp(-high), jobs)

    def alternate(self, one: PairedJob, other: PairedJob) -> bool:
        """Whether two jobs on one node never run at the same time."""
        limit = -log1p(-min(self.threshold, _LARGEST))
        first, second = sorted((one, other))
        for victim, opponent, score in zip(
            (first, second), (second, first), self._draw(first, second), strict=True
        ):
            mean, deviation, _ = self._log_loss(victim.victim, opponent.opponent)
            if mean + score * deviation > limit:
                return True
        return False

    def known(self) -> Iterator[tuple[Victim, str, PairLoss]]:
        """Yield what was learnt, of each victim by opponent."""
        for victim, sums in self._victims.items():
            for opponent in sums.opponents:
                yield victim, opponent, self.loss(victim, opponent)

    def table(self) -> list[tuple[str, str, PairLoss, int]]:
        """Return losses by pair of the applications in most entries: their median, and how many they are.

        Each two users have one entry of a pair of applications at most, so that one who lies moves the loss
        no further than to another entry, unless half of the entries are lies. A pair of which nothing was
        learnt has the loss that is expected, and no entry.
        """
        by_pair: dict[tuple[str, str], dict[tuple[str, str], PairLoss]] = {}
        seen: Counter[str] = Counter()
        for victim, called, loss in self.known():
            opponent = called.rpartition(SEPARATOR)[2]
            seen[victim.application] += 1
            seen[opponent] += 1
            entries = by_pair.setdefault((victim.application, opponent), {})
            users = (victim.user, called)
            if users not in entries or entries[users].jobs < loss.jobs:
                entries[users] = loss
        rows = []
        names = sorted(name for name, _ in seen.most_common(MOST_IN_TABLE))
        for pair in product(names, names):
            ordered = sorted(by_pair.get(pair, {}).values())
            middle = (
                ordered[(len(ordered) - 1) // 2] if ordered else self.loss(Victim("", pair[0], 0), pair[1])
            )
            rows.append((*pair, middle, len(ordered)))
        return rows

    def state(self) -> list[KnownVictim]:
        """Return what the next controller needs to go on."""
        return [
            KnownVictim(
                *victim,
                tuple(sums.opponents),
                tuple(sums.gram[np.triu_indices(len(sums.gram))].tolist()),
                tuple(sums.response.tolist()),
                sums.square,
            )
            for victim, sums in self._victims.items()
        ]

    def recall(self, state: Iterable[KnownVictim]) -> None:
        """Take in what an earlier controller knew; raises ``ValueError`` for what cannot have been learnt."""
        for one in state:
            size = len(one.opponents) + 1
            values = (*one.gram, *one.response, one.square)
            if (
                size > MOST_OPPONENTS + 1
                or len(set(one.opponents)) != size - 1
                or len(one.gram) != size * (size + 1) // 2
                or len(one.response) != size
                or not all(abs(value) < _MOST_SUM for value in values)
            ):
                raise ValueError(f"{one.application} of {one.user} is no entry of a pair table")
            gram = np.zeros((size, size))
            gram[np.triu_indices(size)] = one.gram
            gram = gram + np.triu(gram, 1).T
            if np.linalg.eigvalsh(gram)[0] < -1e-6 * max(1.0, gram[0, 0]) or one.square < 0:
                raise ValueError(f"{one.application} of {one.user} has sums that no jobs have")
            victim = Victim(one.user, one.application, one.cores)
            self._victims[victim] = _Sums(list(one.opponents), gram, np.array(one.response), one.square)
            self._evict(one.user)
        self.version += 1

    def _draw(self, one: PairedJob, other: PairedJob) -> tuple[float, float]:
        """Return by how many deviations each loss is drawn off what is expected; none for most pairs."""
        pair = blake2b(f"{self.seed} {one.job} {other.job}".encode(), digest_size=12).digest()
        shares = [(int.from_bytes(pair[at : at + 4]) + 0.5) / 2**32 for at in (0, 4, 8)]
        if shares[0] >= self.explore:
            return 0.0, 0.0
        return _NORMAL.inv_cdf(shares[1]), _NORMAL.inv_cdf(shares[2])

    def _evict(self, user: str) -> None:
        """Keep within bounds: a user with many entries loses his own."""
        own = [victim for victim in self._victims if victim.user == user]
        if len(own) > MOST_OF_USER:
            del self._victims[own[0]]
        elif len(self._victims) > MOST_VICTIMS:
            most = Counter(victim.user for victim in self._victims).most_common(1)[0][0]
            del self._victims[next(victim for victim in self._victims if victim.user == most)]

    def _expected(self, victim: Victim, opponent: str) -> tuple[float, float]:
        """Mean and deviation of a log loss before any job has ended: no table decides for good."""
        loss = self.prior.get((victim.application, opponent.rpartition(SEPARATOR)[2]), 0.0)
        mean = -log1p(-min(loss, _LARGEST))
        return mean, _LOSS_SD + abs(mean + log1p(-min(self.threshold, _LARGEST))) / 2

    def _log_loss(self, victim: Victim, opponent: str) -> tuple[float, float, float]:
        sums = self._victims.get(victim)
        if sums is None or opponent not in sums.opponents:
            return *self._expected(victim, opponent), 0.0
        mean, variance = sums.posterior or self._solve(victim, sums)
        place = sums.opponents.index(opponent) + 1
        return float(mean[place]), sqrt(max(0.0, float(variance[place]))), float(sums.gram[0, place])

    def _solve(self, victim: Victim, sums: _Sums) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Posterior mean and variance of each column.

        Noise is what residuals say of a fit that the prior hardly pulls: else a loss that is not expected
        would pass for noise.
        """
        priors = [(0.0, _BASE_SD), *(self._expected(victim, name) for name in sums.opponents)]
        centre = np.array([mean for mean, _ in priors])
        precision = np.diag([deviation**-2 for _, deviation in priors])
        covariance = np.linalg.inv(_LOOSE * precision + sums.gram / _NOISE**2)
        mean = covariance @ (_LOOSE * precision @ centre + sums.response / _NOISE**2)
        residual = sums.square - 2 * mean @ sums.response + mean @ sums.gram @ mean
        free = max(0.0, float(sums.gram[0, 0] - np.trace(covariance @ sums.gram) / _NOISE**2))
        noise = (_NOISE_JOBS * _NOISE**2 + max(0.0, float(residual))) / (_NOISE_JOBS + free)
        covariance = np.linalg.inv(precision + sums.gram / noise)
        mean = covariance @ (precision @ centre + sums.response / noise)
        sums.posterior = mean, np.diag(covariance)
        return sums.posterior


def _bent(share: float, loss: float) -> float:
    """Return by how much of its log loss a victim's CPU time grows that is exposed for a share of it."""
    loss = min(max(loss, 1e-3), _LARGEST)
    return log1p(-share * loss) / log1p(-loss) if share <= 1 else share


@dataclass(slots=True)
class _Run:
    job: PairedJob
    is_whole: bool
    nodes: set[str] = field(default_factory=set)
    cpu_us: int = 0
    together_us: Counter[str] = field(default_factory=Counter)


class PairObserver:
    """Adds up what agents report of jobs, and has the learner learn from those that end well.

    Jobs that run when it begins are left out, for what they did before is not known. No clock counts here,
    so that none can be set wrong: shares are shares of CPU time.
    """

    def __init__(self, learner: PairLearner) -> None:
        self._learner = learner
        self._runs: dict[int, _Run] = {}
        self._active: dict[str, dict[int, float]] = {}
        self._has_begun = False

    def see(self, jobs: Iterable[PairedJob], completed: Iterable[int]) -> None:
        """Take in the jobs that hold cores now, and those of Slurm's that have ended well."""
        now = {job.job: job for job in jobs}
        ended = self._runs.keys() - now.keys()
        for number in sorted(ended & set(completed)):
            run = self._runs[number]
            if run.is_whole and run.cpu_us:
                shares = {name: us / run.cpu_us for name, us in run.together_us.items()}
                self._learner.observe(run.job.victim, run.cpu_us / 1e6, shares)
        for number in ended:
            self._forget(number)
        for number, job in now.items():
            known = self._runs.get(number)
            if known is not None and known.job != job:
                self._forget(number)
            if known is None or known.job.start_s != job.start_s:
                self._runs[number] = _Run(job, self._has_begun)
            elif known.job != job:  # other cores, or another name: it is not the same work
                self._runs[number] = _Run(job, is_whole=False)
        self._has_begun = True

    def report(self, report: NodeReport) -> None:
        """Add what jobs of a node used, and with which others they ran; not all are read at one instant."""
        cpu_us: Counter[int] = Counter()
        span_us: Counter[int] = Counter()
        for sample in (*report.alone, *(one for use in report.slices for one in use.samples)):
            if sample.job in self._runs:
                cpu_us[sample.job] += sample.cpu_us
                span_us[sample.job] += sample.span_us
        active = self._active.setdefault(report.node, {})
        for job, us in span_us.items():
            self._runs[job].nodes.add(report.node)
            active[job] = min(1.0, cpu_us[job] / max(1, us))
        held = [{*use.held, *use.yielding} for use in report.slices]
        ran = {job: {place for place, jobs in enumerate(held) if job not in jobs} for job in active}
        for job, used_us in cpu_us.items():
            run = self._runs[job]
            run.cpu_us += used_us
            for other, share in active.items():
                if other != job:
                    both = len(ran[job] & ran[other]) / max(1, len(ran[job])) if held else 1.0
                    run.together_us[self._runs[other].job.opponent] += round(used_us * both * share)

    def _forget(self, number: int) -> None:
        for node in self._runs.pop(number).nodes:
            del self._active[node][number]
