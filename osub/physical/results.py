"""What a study's folder holds, in the order in which tables and claims want it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from analysis.metrics import host_use
from foundation.errors import OsubError
from foundation.records import Run, load_run
from foundation.records.records_folder import is_finished
from osub.physical.folder import StudyFolder
from osub.physical.full_size import OVERHEAD, FullSize
from osub.physical.layouts import DEDICATED, INTERACTIVE_CAP, SharingLayout
from osub.physical.outcome import ReplayOutcome, outcome_of_run
from osub.physical.pair import PairTrial, pair_trial
from osub.physical.places import places_of
from osub.physical.plan import DAY, FIRST, PAIR, PLACES, PlannedReplay, StudyPlan

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

    def values(
        self, layout: str, value: Callable[[ReplayOutcome], float], workload: str | None = None
    ) -> list[float]:
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

    def differences(self, more: str, less: str, value: Callable[[ReplayOutcome], float]) -> list[float]:
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
