"""What the controller learns of pairs while it runs, and keeps for the next, with a table of it."""

from __future__ import annotations

import logging
import secrets
from typing import Literal

import msgspec

from foundation.errors import OsubError
from foundation.slurm import JobSnapshot
from gangd.controller.job_policy import PairRule
from gangd.controller.slurm_view import STATES
from gangd.controller.state_directory import StateDirectory
from gangd.core.pairing import KnownVictim, PairLearner, PairObserver
from gangd.core.scheduler_events import NodeReport

log = logging.getLogger("gangd")


class KeptPairs(msgspec.Struct, frozen=True, kw_only=True):
    """Contents of ``pairs.json``."""

    version: Literal[1] = 1
    seed: int
    victims: list[KnownVictim] = []


class LivePairs:
    """Learns while the rule of pairs says so; what was learnt stays in the state folder."""

    def __init__(self, keeper: StateDirectory) -> None:
        self._keeper = keeper
        self._rule = PairRule()
        self._learner: PairLearner | None = None
        self._observer: PairObserver | None = None
        self._saved = 0
        self._harmful: set[tuple[object, ...]] = set()

    def follow(self, rule: PairRule) -> PairLearner | None:
        """Apply a rule; returns who decides on pairs, None where the table does."""
        if not rule.learns:
            self._learner = self._observer = None
        elif self._learner is None or rule.word != self._rule.word:
            self._learner = self._learner or self._read()
            self._observer = PairObserver(self._learner)
        if self._learner is not None:
            self._learner.set_policy(rule.losses, rule.threshold, rule.explore)
        self._rule = rule
        return self._learner

    def see(self, snapshot: JobSnapshot, completed: frozenset[int]) -> None:
        """Take in what Slurm said of all jobs, and which ended well: others teach nothing."""
        if self._observer is not None:
            holding = [job for job in snapshot.jobs if job.cores and job.state in STATES]
            paired = filter(None, map(self._rule.paired, holding))
            self._observer.see(paired, completed)

    def report(self, report: NodeReport) -> None:
        """Take in what a node reports."""
        if self._observer is not None:
            self._observer.report(report)

    def save(self) -> None:
        """Write what was learnt since it was written last, and log which pairs alternate now."""
        learner = self._learner
        if learner is None or learner.version == self._saved:
            return
        version = learner.version
        harmful: set[tuple[object, ...]] = set()
        for victim, opponent, loss in learner.known():
            if loss.loss > learner.threshold:
                harmful.add((*victim, opponent))
                if (*victim, opponent) not in self._harmful:
                    log.info(
                        "pairs: %s of %s on %d cores loses %.0f%% (%.0f to %.0f) to %s: they alternate",
                        *(victim.application, victim.user, victim.cores),
                        *(100 * loss.loss, 100 * loss.low, 100 * loss.high, opponent),
                    )
        self._harmful = harmful
        lines = ["victim,opponent,e_v,e_v_low,e_v_high,jobs,entries"]
        lines += [
            f"{victim},{opponent},{loss.loss:.4f},{loss.low:.4f},{loss.high:.4f},{loss.jobs:.1f},{entries}"
            for victim, opponent, loss, entries in learner.table()
        ]
        kept = KeptPairs(seed=learner.seed, victims=learner.state())
        self._keeper.write_pairs(msgspec.json.encode(kept), "\n".join(lines) + "\n")
        self._saved = version

    def _read(self) -> PairLearner:
        """Return a learner that knows what the last one did; of a damaged file nothing counts."""
        learner = PairLearner(secrets.randbits(48))
        try:
            content = self._keeper.read_pairs()
            if content is None:
                return learner
            kept = msgspec.json.decode(content, type=KeptPairs)
            known = PairLearner(kept.seed)
            known.recall(kept.victims)
        except (OsubError, OSError, msgspec.DecodeError, ValueError) as error:
            self._keeper.keep_pairs_aside(str(error))
            return learner
        self._saved = known.version
        return known
