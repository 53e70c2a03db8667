"""The hybrid policies and their options: what is done for an on-demand job, and what is drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from foundation.errors import UsageError
from foundation.units import seconds_to_us
from simulator.hybrid.drawn_jobs import MIXES, Draw, draw_lives, read_lives
from simulator.hybrid.hybrid_build import Mechanism
from simulator.hybrid.hybrid_state import COLLECT, NOTHING, PLAN, SHARE
from simulator.placement import SlurmPlacement, ThesisPlacement
from simulator.policies.policy_family import Family, PolicyOption, Value, choice, number
from simulator.policy_interface import SchedulerContext
from simulator.sharing import Proportional

if TYPE_CHECKING:
    from simulator.engine.pool_run import PoolRun, PoolWork
    from simulator.engine.run_rules import RunRules
    from simulator.model.system import PoolQueues
    from simulator.simulation import Workload

STRATEGIES = {
    "n": (NOTHING, "notices are ignored"),
    "cua": (COLLECT, "from its notice on it collects what is and becomes free"),
    "cup": (PLAN, "nodes are planned to be free for it at the predicted arrival"),
}
ARRIVALS = {
    "paa": (False, "then jobs are preempted, by ascending overhead"),
    "spaa": (True, "then malleable jobs shrink, if that suffices, else jobs are preempted"),
}


@dataclass(frozen=True, slots=True)
class Hybrid:
    """A mechanism of Fan et al., or shared cores instead of preemption; see ``simulator.hybrid``."""

    mechanism: Mechanism

    def schedule(self, context: SchedulerContext) -> None:  # noqa: ARG002
        """Refuse.

        Raises
        ------
        UsageError
            Always.
        """
        raise UsageError.naming("hybrid policies go with built-in rules only, and not with {quantum_ms}")

    def run_pool(
        self, work: PoolWork, rules: RunRules, *, check: bool, progress: Callable[[int], None] | None
    ) -> PoolRun:
        """See ``PoolPolicy``."""
        from simulator.hybrid.hybrid_pool import run_whole_pool

        if not isinstance(rules.sharing, Proportional):
            raise UsageError.naming("hybrid policies know {overhead} only, no other model of sharing")
        if rules.outages or rules.failing is not None:
            raise UsageError("nodes do not fail under hybrid policies")
        if not isinstance(rules.placement, SlurmPlacement | ThesisPlacement):
            raise UsageError.naming(
                "hybrid policies choose nodes themselves: {placement} of your own does not go with them"
            )
        return run_whole_pool(work, self.mechanism, rules.sharing.overhead, check=check, progress=progress)


_DRAWN = Draw()
OPTIONS = (
    PolicyOption(
        name="jobs", help="CSV file of kinds, sizes, notices (docs/hybrid.md); else drawn", default=""
    ),
    number("ondemand_share", _DRAWN.on_demand, 0, 1, "share of the projects that are on demand"),
    number("malleable_share", _DRAWN.malleable, 0, 1, "share of the projects that are malleable"),
    number("projects", _DRAWN.projects, 0, 1e6, "projects; 0: the users of the trace are projects"),
    choice("mix", tuple(MIXES), "of notices: mostly none, accurate, early, late; equal", _DRAWN.mix),
    number("min_share", _DRAWN.least, 0.001, 1, "least size of a malleable job over its request"),
    number(
        "mtbf_years",
        _DRAWN.node_mtbf_years,
        0.001,
        1e6,
        "years between failures of a node, for Daly's interval",
    ),
    number("interval", 100.0, 1, 10_000, "percent of Daly's interval between checkpoints"),
    choice("checkpoints", ("timed", "free"), "what they take: the time drawn, or none"),
    number("warning", 120.0, 0, 1e6, "seconds that a preempted malleable job holds its nodes"),
    number("release", 600.0, 0, 1e6, "seconds after the predicted arrival that nodes stay reserved"),
    choice("squatting", ("yes", "no"), "backfill on reserved nodes"),
    choice(
        "preemption",
        ("ascending", "optimal"),
        "victims by overhead one by one, or those of least overhead together",
    ),
)
WEIGHT = number("weight", 4, 1, 100, "of an on-demand job that shares; the other's is 1")


def mechanism_of(strategy: int, shrinks: bool, values: Mapping[str, Value]) -> Mechanism:
    """Return what the options say."""
    return Mechanism(
        strategy=strategy,
        shrinks=shrinks,
        optimal=values["preemption"] == "optimal",
        weight=int(values.get("weight", 1)),
        warning_us=seconds_to_us(float(values["warning"])),
        release_us=seconds_to_us(float(values["release"])),
        squatting=values["squatting"] == "yes",
        interval=Fraction(str(values["interval"])) / 100,
        free_checkpoints=values["checkpoints"] == "free",
    )


def prepare(workload: Workload, queues: PoolQueues, values: Mapping[str, Value], seed: int) -> Workload:
    """Return the workload with kinds, sizes and notices, from a file or drawn.

    Raises
    ------
    UsageError
        Shares add up to more than 1.
    InputError
        See ``read_lives``.
    """
    draw = Draw(
        on_demand=float(values["ondemand_share"]),
        malleable=float(values["malleable_share"]),
        projects=int(values["projects"]),
        mix=str(values["mix"]),
        least=float(values["min_share"]),
        node_mtbf_years=float(values["mtbf_years"]),
    )
    if draw.on_demand + draw.malleable > 1:
        raise UsageError.naming("{settings} ondemand_share and malleable_share add up to more than 1")
    if values["jobs"]:
        return read_lives(Path(str(values["jobs"])), workload, draw)
    return draw_lives(workload, queues.batch.nodes, draw, seed)


def _maker(strategy: int, shrinks: bool) -> Callable[[Mapping[str, Value]], Hybrid]:
    return lambda values: Hybrid(mechanism_of(strategy, shrinks, values))


FAMILIES = (
    *(
        Family(
            name=f"hybrid-{before}-{at}",
            help=f"EASY with on-demand jobs: {text}; {also}",
            make=_maker(strategy, shrinks),
            options=OPTIONS,
            prepare=prepare,
            times_passes=True,
        )
        for before, (strategy, text) in STRATEGIES.items()
        for at, (shrinks, also) in ARRIVALS.items()
    ),
    Family(
        name="hybrid-share",
        help="EASY with on-demand jobs that start at once on shared cores; no job is preempted",
        make=_maker(SHARE, False),
        options=(*OPTIONS, WEIGHT),
        prepare=prepare,
        guests=1,
        times_passes=True,
    ),
)
