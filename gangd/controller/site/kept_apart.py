"""Jobs that must not run at the same time on a node though their cores differ, from a table of pairs.

The core knows one reason why two gangs never share a slice: a core that both hold. So two jobs on a node
whose applications harm each other are given a *seat* there: a number that is no core, which both hold, and
no other job does. What a job runs is said by one word, ``gangd-app=NAME``; by default of Slurm's
AdminComment, which operators and job-submit plugins write and users don't.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

from foundation.errors import InputError
from foundation.one_line import one_line
from foundation.slurm import SlurmJob
from foundation.trust import read_trusted

APP_WORD = "gangd-app="
_MOST_BYTES = 16 << 20
_COLUMNS = {"victim", "opponent", "e_v"}


@dataclass(frozen=True, slots=True)
class PairRule:
    """Which applications must not run at the same time.

    Parameters
    ----------
    pairs
        As (one, other) in ascending order; both may be the same.
    by_user
        Whether the job's own comment names its application, and not AdminComment.
    """

    pairs: frozenset[tuple[str, str]] = frozenset()
    by_user: bool = False

    def application(self, job: SlurmJob) -> str | None:
        """Return what a job runs; None where no field says it, or two fields disagree."""
        if not self.pairs:
            return None
        text = (job.comment if self.by_user else job.admin_comment) or ""
        said = {word for word in text.replace(",", " ").split() if word.startswith(APP_WORD)}
        return said.pop().removeprefix(APP_WORD) if len(said) == 1 else None

    def is_harmful(self, one: str, other: str) -> bool:
        """Whether one of the two loses more than it may to the other."""
        return (min(one, other), max(one, other)) in self.pairs


def read_pairs(path: Path, threshold: float, *, by_user: bool) -> PairRule:
    """Read a table of losses (CSV ``victim,opponent,e_v``), as ``osub predict matrix --csv`` writes it.

    Parameters
    ----------
    path
        A file that only root or the user could have written.
    threshold
        E_v above which a victim is harmed.
    by_user
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
        if len(raw) > _MOST_BYTES:
            raise InputError(f"{path} is larger than {_MOST_BYTES >> 20} MiB; it is no table of pairs")
        reader = csv.DictReader(io.StringIO(raw.decode()))
        missing = _COLUMNS - set(reader.fieldnames or ())
        if missing:
            raise InputError(f"{path}: column {min(missing)} is missing; wanted: victim, opponent, e_v")
        harmful = set()
        for row in reader:
            one, other, loss = row["victim"], row["opponent"], _number(row["e_v"])
            if not one or not other or loss is None:
                raise InputError(
                    f"{path}: line {reader.line_num}: victim, opponent and a finite e_v are wanted"
                )
            if loss > threshold:
                harmful.add((min(one, other), max(one, other)))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"cannot read the table of pairs {path}: {one_line(str(error))}") from error
    return PairRule(frozenset(harmful), by_user)


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) else None


Seat = Mapping[str, tuple[int, ...]]
"""By node, the numbers of a job's seats there, from 0."""


@dataclass(slots=True)
class Seats:
    """Gives pairs of jobs seats on their nodes; a pair keeps its seat for as long as both are there."""

    _rule: PairRule = field(default_factory=PairRule)
    _taken: dict[str, dict[tuple[int, int], int]] = field(default_factory=dict)
    _known: Sequence[tuple[int, str, tuple[str, ...]]] = ()
    _seats: Mapping[int, Seat] = field(default_factory=dict)

    def set_rule(self, rule: PairRule) -> None:
        """Apply another rule from the next call on."""
        self._rule = rule
        self._known = ()
        self._seats = {}
        self._taken = {}

    def of(self, jobs: Iterable[SlurmJob]) -> Mapping[int, Seat]:
        """Return the seats of each job that must not run together with another one that holds cores."""
        if not self._rule.pairs:
            return {}
        known = [
            (job.job_id, name, job.nodes)
            for job in jobs
            if job.cores and (name := self._rule.application(job)) is not None
        ]
        if known != self._known:
            self._known, self._seats = known, self._assign(known)
        return self._seats

    def most(self, node: str) -> int:
        """Return how many seat numbers a node needs."""
        return max(self._taken.get(node, {}).values(), default=-1) + 1

    def _assign(
        self, known: Sequence[tuple[int, str, tuple[str, ...]]]
    ) -> dict[int, dict[str, tuple[int, ...]]]:
        on_node: dict[str, list[tuple[int, str]]] = {}
        for job, name, nodes in known:
            for node in nodes:
                on_node.setdefault(node, []).append((job, name))
        taken: dict[str, dict[tuple[int, int], int]] = {}
        seats: dict[int, dict[str, list[int]]] = {}
        for node, here in on_node.items():
            pairs = [
                (min(one, other), max(one, other))
                for (one, name), (other, opponent) in combinations(here, 2)
                if self._rule.is_harmful(name, opponent)
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
