"""The study's folder: its plan, its traces, its runs, and its results in the order of tables and claims.

``study.json`` is written once, when the study begins, and is what a later call goes on with. A RUN that is
not finished belongs to a cluster that is gone, so it is made again. Nothing else in the folder is removed.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import msgspec

from analysis.metrics import host_use
from foundation.errors import InputError, OsubError, OutputError
from foundation.files import write_whole
from foundation.records import JOBS, Run, load_run
from foundation.records.records_folder import INFO_NAME, is_finished
from foundation.trust import refuse_for_root
from osub.physical.layouts import DEDICATED, INTERACTIVE_CAP, SharingLayout, places_of
from osub.physical.outcome import OVERHEAD, FullSize, ReplayOutcome, Value, outcome_of_run
from osub.physical.pair import PairTrial, pair_trial, why_unfit
from osub.physical.plan import DAY, FIRST, PAIR, PLACES, PlannedReplay, StudyPlan

STUDY, LISTING, INPUTS = "study.json", "runs", "inputs"
_WORK, _SCRATCH = "work.json", "cluster-folder"
SIMULATED = "-simulated"
VERSION = 2
"""Version 1 held the pair of Table 7.4 against one job of another replay."""


class KeptStudy(msgspec.Struct, frozen=True, kw_only=True):
    """What ``study.json`` holds: the plan, the trace that it was made for, the engine of its clusters."""

    version: int = VERSION
    plan: StudyPlan
    trace_name: str
    trace_sha256: str
    engine: str | None = None


class StudyFolder:
    """One study on disk.

    Parameters
    ----------
    path
        The folder; made where it is missing.

    Raises
    ------
    OutputError, TrustError
        It cannot be made, or is root's and in others' hands.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        try:
            (self.path / LISTING).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(f"cannot make {path}: {error.strerror}") from error
        refuse_for_root(self.path)

    def study(self) -> KeptStudy | None:
        """Return what was begun here, None where nothing was.

        Raises
        ------
        InputError
            The file is damaged, or of another version.
        """
        path = self.path / STUDY
        try:
            study = msgspec.json.decode(path.read_bytes(), type=KeptStudy)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as error:
            raise InputError(
                f"{path} is not a study of this version ({error}); choose another --out"
            ) from error
        if study.version != VERSION:
            raise InputError(
                f"{path} is a study of version {study.version}, and this osub makes version {VERSION}, which "
                "measures the pair of Table 7.4 otherwise; choose another --out"
            )
        return study

    def begin(self, study: KeptStudy) -> None:
        """Write the plan of a new study."""
        write_whole(self.path / STUDY, msgspec.json.format(msgspec.json.encode(study), indent=2).decode())

    def forget(self, plan: StudyPlan) -> None:
        """Remove the runs of an earlier study, and what it knew."""
        for item in plan.items():
            for path in (self.run(item), self.simulated(item)):
                self.remove_run(path)
        for name in (STUDY, _WORK):
            (self.path / name).unlink(missing_ok=True)

    def run(self, item: PlannedReplay) -> Path:
        """Return the RUN of a replay."""
        return self.path / LISTING / item.name

    def simulated(self, item: PlannedReplay) -> Path:
        """Return the RUN of its simulation."""
        return self.path / LISTING / f"{item.name}{SIMULATED}"

    def is_done(self, item: PlannedReplay) -> bool:
        """Return whether a replay is finished."""
        return is_finished(self.run(item))

    def lacking(self, plan: StudyPlan) -> list[PlannedReplay]:
        """Return the replays that are yet to be made, in order."""
        return [item for item in plan.items() if not self.is_done(item)]

    def unfit(self, plan: StudyPlan) -> dict[PlannedReplay, str]:
        """Return the finished replays that are unfit to judge by, and why: others' load, for one.

        Each is judged once: a finished RUN does not change.
        """
        done = [item for item in plan.items() if self.is_done(item)]
        judged = {
            item: _why_unfit(self.run(item), item, _stamp(self.run(item) / JOBS.file_name)) for item in done
        }
        return {item: why for item, why in judged.items() if why is not None}

    def remove_unfit(self, plan: StudyPlan) -> int:
        """Remove the replays that are unfit to judge by, and simulations made from them; return how many."""
        unfit = self.unfit(plan)
        for item in unfit:
            self.remove_run(self.run(item))
        measured_on = {(item.workload, item.trial) for item in unfit if item.layout == DEDICATED.key}
        for item in plan.items():
            if item in unfit or (item.workload, item.trial) in measured_on:
                self.remove_run(self.simulated(item))
        return len(unfit)

    def remove_run(self, path: Path) -> None:
        """Remove a RUN, finished or not.

        Raises
        ------
        OutputError
            Something is there that is no RUN.
        """
        if path.is_symlink() or (path.exists() and not (path / INFO_NAME).is_file()):
            raise OutputError(f"{path} is no run of this study: move it away, or choose another --out")
        if path.exists():
            shutil.rmtree(path)

    def work(self) -> dict[str, dict[str, tuple[int, int]]]:
        """Return for each workload's draw, by job, its ranks and how many steps it makes on them."""
        path = self.path / _WORK
        if not path.exists():
            return {}
        try:
            return msgspec.json.decode(path.read_bytes(), type=dict[str, dict[str, tuple[int, int]]])
        except (OSError, msgspec.DecodeError) as error:
            raise InputError(f"{path} is damaged ({error}); begin again with --force") from error

    def keep_work(self, draw: str, work: Mapping[int, tuple[int, int]]) -> None:
        """Keep how many steps the jobs of a draw make from now on."""
        known = self.work() | {draw: {str(job): steps for job, steps in work.items()}}
        write_whole(self.path / _WORK, msgspec.json.encode(known).decode())

    def cluster_folder(self) -> Path | None:
        """Return where an earlier call had its cluster, None where it took it down itself."""
        try:
            text = (self.path / _SCRATCH).read_text(encoding="utf-8").strip()
        except OSError:
            return None
        return Path(text) if text else None

    def note_cluster(self, folder: Path | None) -> None:
        """Note where the cluster is, so that a later call can take it down if this one is killed."""
        if folder is None:
            (self.path / _SCRATCH).unlink(missing_ok=True)
        else:
            write_whole(self.path / _SCRATCH, f"{folder}\n")


def _stamp(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_ino, found.st_mtime_ns


@lru_cache(maxsize=1024)
def _why_unfit(run: Path, item: PlannedReplay, stamp: tuple[int, int]) -> str | None:  # noqa: ARG001 - part of the key of what is kept
    """Return why a RUN is unfit to judge by, None where it is not; ``stamp`` tells it from a later one."""
    return why_unfit(load_run(run), item)


Key = tuple[str, int]
"""A workload and a trial."""


@dataclass(frozen=True, slots=True)
class Results:
    """Everything that was found.

    Attributes
    ----------
    plan, layouts
        What was run.
    real, simulated
        Outcomes by layout, and by workload and trial.
    pairs
        What the pair's trials found, by layout and trial; those that are not judged are left out.
    places
        Where Slurm put the jobs of Table 7.8; None where it was not tried.
    full
        The thesis's own size; empty where the pair is all.
    unfit
        Why replays are unfit to judge by, such as others' load on the host.
    unwatched
        Replays without a measurement of the host's use.
    made
        How many replays there are.
    unsimulated
        Why runs have no simulation.
    """

    plan: StudyPlan
    layouts: Mapping[str, SharingLayout]
    real: Mapping[str, Mapping[Key, ReplayOutcome]]
    simulated: Mapping[str, Mapping[Key, ReplayOutcome]]
    pairs: Mapping[str, Mapping[int, PairTrial]]
    places: Mapping[int, str] | None
    full: FullSize
    unsimulated: Sequence[str] = field(default_factory=tuple)
    unfit: Mapping[str, str] = field(default_factory=dict)
    unwatched: int = 0
    made: int = 0

    def values(self, layout: str, value: Value, workload: str | None = None) -> list[float]:
        """Return a value of each replay in which every job completed, of all workloads or of one."""
        return [
            value(outcome)
            for (name, _), outcome in self.real.get(layout, {}).items()
            if not outcome.failed and workload in (None, name)
        ]

    def workloads(self) -> list[str]:
        """Return the workloads that were replayed, the first hours first."""
        found = {name for of in self.real.values() for name, _ in of}
        return [name for name in (FIRST, DAY) if name in found]

    def replayed(self) -> list[str]:
        """Return the layouts that were replayed, in the plan's order."""
        return [key for key in self.layouts if key in self.real]

    def differences(self, more: str, less: str, value: Value) -> list[float]:
        """Return by how much a value is larger under one layout, replay by replay of the same jobs."""
        mine, other = self.real.get(more, {}), self.real.get(less, {})
        both = [key for key in mine if key in other and not (mine[key].failed or other[key].failed)]
        return [value(mine[key]) - value(other[key]) for key in both]

    def pair_losses(self, layout: str) -> list[float]:
        """Return what the pair lost under a layout, trial by trial."""
        return [trial.loss for trial in self.pairs.get(layout, {}).values()]

    def pairs_left_out(self) -> dict[str, str]:
        """Return the pair's trials that are not judged, by name, and why."""
        shared = [
            item for item in self.plan.items() if item.workload == PAIR and item.layout != DEDICATED.key
        ]
        return {item.name: self.unfit[item.name] for item in shared if item.name in self.unfit}

    def label(self, layout: str) -> str:
        """Return a layout's name for people."""
        return self.layouts[layout].label


def gather(
    plan: StudyPlan,
    folder: StudyFolder,
    layouts: Mapping[str, SharingLayout],
    full: FullSize,
    done: Callable[[str], None] = lambda _: None,
) -> Results:
    """Read the study's runs, and simulate those that have no simulation yet; ``done`` is called with each."""
    real: dict[str, dict[Key, ReplayOutcome]] = {}
    simulated: dict[str, dict[Key, ReplayOutcome]] = {}
    pairs: dict[str, dict[int, PairTrial]] = {}
    places = None
    why_not: list[str] = []
    unfit: dict[str, str] = {}
    unwatched = count = 0
    for item in plan.items():
        if not folder.is_done(item):
            continue
        run = load_run(folder.run(item))
        use = host_use(run)
        count += 1
        unwatched += use.samples == 0
        if use.unfit is not None:
            unfit[item.name] = use.unfit
        if item.workload == PLACES:
            names = {name: number for number, name in enumerate(run.info.node_names or ())}
            places = places_of(run.jobs, names)
        elif item.workload == PAIR:
            if item.layout != DEDICATED.key:
                found = pair_trial(run)
                if isinstance(found, str):
                    unfit[item.name] = found
                else:
                    pairs.setdefault(item.layout, {})[item.trial] = found
        else:
            key = item.workload, item.trial
            real.setdefault(item.layout, {})[key] = outcome_of_run(run)
            try:
                other = _simulated(item, run, folder, layouts[item.layout], plan)
                simulated.setdefault(item.layout, {})[key] = outcome_of_run(other)
            except OsubError as error:
                why_not.append(f"{run.info.label}: {error}")
        done(item.name)
    return Results(
        plan=plan,
        layouts=layouts,
        real=real,
        simulated=simulated,
        pairs=pairs,
        places=places,
        full=full,
        unsimulated=tuple(why_not),
        unfit=unfit,
        unwatched=unwatched,
        made=count,
    )


def _simulated(
    item: PlannedReplay, real: Run, folder: StudyFolder, layout: SharingLayout, plan: StudyPlan
) -> Run:
    """Return the simulation of a replay: the very jobs, the same layout, Slurm's latencies as measured."""
    from osub.api.simulation import simulate

    path = folder.simulated(item)
    if is_finished(path):
        return load_run(path)
    folder.remove_run(path)
    gang = real.info.gang
    simulate(
        real.path,
        f"N{plan.nodes}C{plan.cores}",
        out=path,
        multiplicity=layout.multiplicity,
        queues="sq" if layout.interactive_nodes is None else "mq",
        interactive_nodes=layout.interactive_nodes,
        multiplicity_interactive=INTERACTIVE_CAP,
        overhead=OVERHEAD,
        quantum_ms=gang.quantum_ms,
        latency=_latency_run(item, folder, plan),
        label=f"{real.info.label} (sim)",
    )
    return load_run(path)


def _latency_run(item: PlannedReplay, folder: StudyFolder, plan: StudyPlan) -> str | None:
    """Return the dedicated replay of the same jobs in the same round, on which latencies are measured."""
    for other in plan.items():
        same = other.workload == item.workload and other.trial == item.trial
        if same and other.layout == DEDICATED.key and folder.is_done(other):
            return str(folder.run(other))
    return None
