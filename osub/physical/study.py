"""The study from what is asked for to its findings: plan, replays, simulations, verdicts."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Literal

from deploy.compose.engine import EngineName, find_engine
from deploy.compose.image import ensure_images
from deploy.compose.plan import DEBIANS
from foundation.errors import InputError, UsageError
from foundation.records.records_folder import FolderLock
from foundation.units import counted
from osub.live.forward import Hear
from osub.physical import cluster_provider as provider
from osub.physical.carry import StudyReplays, carry_out, traces_of
from osub.physical.folder import KeptStudy, StudyFolder, gather
from osub.physical.found import findings
from osub.physical.layouts import layouts_of
from osub.physical.outcome import FullSize, simulate_full_size
from osub.physical.plan import CLUSTER_S, CONTAINERS_S, RequestedPlan, StudyPlan, known_layouts, make_plan
from simulator.experiments.claim_study import StudyFindings
from workloads.importers.fetch_log import cache_folder
from workloads.swf import SwfTrace, read_swf
from workloads.trace.scaling import check_gaia, first_hours, whole_day

LOG_NAME = "UniLu-Gaia-2014-1"
USUAL_BUDGET_S = 1800.0
FULL_SEEDS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedStudy:
    """What a user asks for; None where nothing was said.

    Attributes
    ----------
    trace
        The log.
    out
        The study's folder.
    budget_s, seeds, trials, only
        See ``plan.Wanted``.
    clusters
        Clusters in the layouts of the study; none: embedded ones.
    configure
        A program that changes the one cluster to each layout; None: each cluster has one.
    nodes, cores
        Of the study's own clusters: as this host's CPUs have it.
    again_unfit
        Whether replays that are unfit to judge by are removed first, and made again.
    engine, hear
        The engine in whose containers the study's own clusters are, and signals that end a replay there;
        None: that of the study in the folder, or embedded clusters.
    """

    trace: Path
    out: Path
    budget_s: float | None = None
    seeds: int | None = None
    trials: int | None = None
    only: Literal["pair"] | None = None
    clusters: Sequence[Path] = ()
    configure: Path | None = None
    nodes: int
    cores: int
    again_unfit: bool = False
    engine: EngineName | None = None
    hear: Hear = lambda _: nullcontext()


@dataclass(frozen=True, slots=True)
class PreparedStudy:
    """A study that could begin now, or goes on.

    Attributes
    ----------
    plan
        What is run.
    lacking
        How many replays are yet to be made.
    left_s
        How long they take, about.
    is_new
        Whether nothing was done so far.
    """

    plan: StudyPlan
    lacking: int
    left_s: float
    is_new: bool


class PhysicalStudy:
    """One study.

    Parameters
    ----------
    asked
        What is asked for.
    force
        Whether an earlier study in the same folder is begun anew.
    say
        Called with messages for the user.

    Attributes
    ----------
    sha256
        Of the log.
    day
        The whole day by seed, for N12C12.

    Raises
    ------
    InputError
        The log is missing, or another one.
    UsageError
        The budget or the cluster does not do; or the folder has a study that was planned otherwise.
    """

    def __init__(
        self, asked: RequestedStudy, *, force: bool = False, say: provider.Say = lambda _: None
    ) -> None:
        self._asked, self._say = asked, say
        self._log = _read(asked.trace)
        self.sha256 = hashlib.sha256(asked.trace.read_bytes()).hexdigest()
        self._first = first_hours(self._log)
        self._given = _given(asked, say)
        self._force = force
        self.day: Callable[[int], SwfTrace] = cache(lambda seed: whole_day(self._log, seed))

    def prepare(self) -> PreparedStudy:
        """Return the plan: the one that was begun in the folder, or a new one. Nothing is written."""
        folder = StudyFolder(self._asked.out) if self._asked.out.exists() else None
        known = None if folder is None or self._force else folder.study()
        if folder is None or known is None:
            plan = self._planned(self._asked.engine)
            return PreparedStudy(plan, len(plan.items()), plan.estimate_s, is_new=True)
        self._check_same(known)
        lacking = len(folder.lacking(known.plan))
        if self._asked.again_unfit:
            lacking += len(folder.unfit(known.plan))
        part = lacking / max(1, len(known.plan.items()))
        return PreparedStudy(known.plan, lacking, part * known.plan.estimate_s, is_new=False)

    def run(self, follow: provider.Follow, done: Callable[[str], None] = lambda _: None) -> StudyFindings:
        """Make the replays that lack, simulate, and judge.

        Parameters
        ----------
        follow
            Carries a replay out and shows it.
        done
            Called with each simulation.

        Raises
        ------
        OsubError
            A cluster does not start, or the user ended the study.
        """
        folder = StudyFolder(self._asked.out)
        with FolderLock(folder.path):
            embedded = folder.cluster_folder()
            known = folder.study()
            if known is not None and self._force:
                folder.forget(known.plan)
                known = None
            if known is None:
                plan = self._planned(self._asked.engine)
                known = KeptStudy(
                    plan=plan, trace_name=self._log.name, trace_sha256=self.sha256, engine=self._asked.engine
                )
                folder.begin(known)
            self._check_same(known)
            if self._asked.again_unfit and (gone := folder.remove_unfit(known.plan)):
                self._say(f"{counted(gone, 'replay')} unfit to judge by: made again")
            if folder.lacking(known.plan) or embedded is not None:
                self._replay(known, folder, follow)
            return self._judged(known.plan, folder, done)

    def judge(self, done: Callable[[str], None] = lambda _: None) -> StudyFindings:
        """Judge the replays that are there, and make none.

        Raises
        ------
        UsageError
            No study was begun in the folder.
        """
        folder = StudyFolder(self._asked.out) if self._asked.out.exists() else None
        known = None if folder is None else folder.study()
        if folder is None or known is None:
            raise UsageError(f"{self._asked.out} holds no study: leave --judge out to begin one")
        with FolderLock(folder.path):
            self._check_same(known)
            return self._judged(known.plan, folder, done)

    def _judged(self, plan: StudyPlan, folder: StudyFolder, done: Callable[[str], None]) -> StudyFindings:
        nothing = FullSize(outcomes={}, places={}, finish_s={})
        full = nothing if plan.only else simulate_full_size(self.day, FULL_SEEDS, done)
        results = gather(plan, folder, known_layouts(plan), full, done)
        for why in results.unsimulated:
            self._say(f"not simulated: {why}")
        return findings(results, self._first, self.day(plan.draws[0] if plan.draws else 1))

    def _replay(self, known: KeptStudy, folder: StudyFolder, follow: provider.Follow) -> None:
        plan = known.plan
        layouts = known_layouts(plan)
        beds: provider.Beds
        if self._asked.configure is not None:
            beds = provider.ConfiguredBeds(self._asked.clusters[0], self._asked.configure, layouts).bed
        elif self._given is not None:
            beds = partial(provider.given_bed, self._given.folders)
        else:
            engine = None if known.engine is None else EngineName(known.engine)
            if engine is not None:
                ensure_images(find_engine(engine), DEBIANS[0], accounting=False, say=self._say)
            own = provider.OwnBeds(plan.nodes, plan.cores, layouts, folder, engine, self._asked.hear)
            beds = own.bed
            if own.clear():
                self._say("took down the cluster that an earlier call left")
        from workloads.rrba.solvers.compiled_solvers import compile_all

        compile_all()  # ahead of the jobs, of which the first would take seconds longer
        replays = StudyReplays(plan, folder, layouts, traces_of(plan, self._first, self.day), follow)
        carry_out(plan, folder, beds, replays, self._say)

    def _planned(self, engine: str | None) -> StudyPlan:
        asked, given = self._asked, self._given
        nodes, cores = (asked.nodes, asked.cores) if given is None else (given.nodes, given.cores)
        wanted = RequestedPlan(
            nodes=nodes,
            cores=cores,
            layouts=layouts_of(nodes) if given is None else given.layouts,
            budget_s=asked.budget_s or USUAL_BUDGET_S,
            seeds=3 if asked.seeds is None else asked.seeds,
            trials=asked.trials,
            only=asked.only,
            places=given is None,
            cluster_s=CLUSTER_S if engine is None else CONTAINERS_S,
        )
        return make_plan(wanted, self._first, self.day(1))

    def _check_same(self, known: KeptStudy) -> None:
        """Refuse to go on with a study that was planned for something else."""
        where = self._asked.out
        if known.trace_sha256 != self.sha256:
            raise InputError(
                f"{where} holds a study of another file ({known.trace_name}); choose another --out"
            )
        asked = self._asked
        if asked.engine is not None and asked.engine != known.engine:
            raise UsageError(
                f"{where} holds a study on {known.engine or 'embedded or given'} clusters: leave --engine "
                "out to go on with it, choose another --out, or --force to begin anew"
            )
        said = (asked.budget_s, asked.seeds, asked.trials, asked.only)
        if (self._given is not None or any(one is not None for one in said)) and self._planned(
            known.engine
        ) != known.plan:
            raise UsageError(
                f"{where} holds a study that was planned otherwise: leave --budget, --seeds, --trials, "
                "--only and --cluster as they were to go on with it, choose another --out, or --force to "
                "begin anew"
            )


def _given(asked: RequestedStudy, say: provider.Say) -> provider.Given | None:
    """Return what the user's clusters are; None where he gave none."""
    if asked.configure is None:
        return provider.recognise(asked.clusters, say) if asked.clusters else None
    if len(asked.clusters) != 1:
        raise UsageError("--configure PROGRAM changes one cluster from layout to layout: give one --cluster")
    target = provider.look_at(asked.clusters[0]).target
    nodes = len(target.node_names)
    return provider.Given(nodes=nodes, cores=target.cores, layouts=layouts_of(nodes), folders={})


def _read(path: Path) -> SwfTrace:
    if not path.exists():
        raise InputError(
            f"there is no {path}: the study replays two days of {LOG_NAME}; `osub trace fetch {LOG_NAME}` "
            "gets it"
        )
    log = read_swf(path)
    check_gaia(log)
    return log


def cached_log() -> Path:
    """Return where ``osub trace fetch`` keeps the log."""
    return cache_folder(os.environ) / f"{LOG_NAME}.swf.gz"
