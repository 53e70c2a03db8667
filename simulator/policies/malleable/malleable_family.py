"""The malleable strategies in the registry: their options, and how jobs become malleable."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from foundation.errors import UsageError
from foundation.units import seconds_to_us
from simulator.model.job_sizes import Amdahl, Downey, Efficiencies, Fractions, SizeConversion, read_sizes
from simulator.model.jobs import JobLives, Sizes
from simulator.policies.malleable.strategies import Malleable, Strategy
from simulator.policies.policy_family import Family, PolicyOption, Value

if TYPE_CHECKING:
    from simulator.model.system import PoolQueues
    from simulator.simulation import Workload

STRATEGIES: dict[str, tuple[Strategy, str]] = {
    "malleable-min": (Strategy(), "jobs start at their minimum; few change size at a time"),
    "malleable-pref": (
        Strategy(prefers=True, yields=True),
        "jobs start at the size that they prefer, or smaller",
    ),
    "malleable-avg": (Strategy(evenly=True), "jobs start at their minimum; nodes are shared out evenly"),
    "malleable-keep-pref": (Strategy(prefers=True), "jobs never have fewer nodes than they prefer"),
}
"""Section 2.1: MIN, PREF, AVG, KEEPPREF."""

OPTIONS = (
    PolicyOption(
        name="malleable_share",
        help="share of the batch jobs that are malleable, drawn by --seed; also --malleable-share",
        default=1.0,
        least=0.0,
        most=1.0,
    ),
    PolicyOption(
        name="conversion",
        help="how a request becomes sizes: amdahl or downey with efficiencies, or fractions of it",
        default="amdahl",
        choices=("amdahl", "downey", "fractions"),
    ),
    PolicyOption(
        name="efficiency_min", help="more than this at the minimum size", default=0.95, least=0.01, most=1.0
    ),
    PolicyOption(
        name="efficiency_preferred",
        help="more than this at the preferred size",
        default=0.8,
        least=0.01,
        most=1.0,
    ),
    PolicyOption(
        name="efficiency_max", help="more than this at the maximum size", default=0.5, least=0.01, most=1.0
    ),
    PolicyOption(name="average", help="downey: least average parallelism", default=16, least=1, most=1e6),
    PolicyOption(name="sigma", help="downey: variance of the parallelism", default=1.0, least=0.0, most=1e3),
    PolicyOption(
        name="min_fraction", help="fractions: minimum over request", default=0.5, least=1e-3, most=1.0
    ),
    PolicyOption(
        name="max_fraction", help="fractions: maximum over request", default=2.0, least=1.0, most=1e3
    ),
    PolicyOption(
        name="sizes", help="or a CSV file of sizes: trace_job, min_nodes, ... (docs/malleable.md)", default=""
    ),
    PolicyOption(
        name="tick", help="seconds between passes; 0: a pass at every event", default=0.0, least=0.0, most=1e6
    ),
    PolicyOption(
        name="cost", help="seconds that a job sets up when it is resized", default=0.0, least=0.0, most=1e6
    ),
    PolicyOption(
        name="cost_a_node",
        help="and seconds for each node that comes or goes",
        default=0.0,
        least=0.0,
        most=1e6,
    ),
    PolicyOption(
        name="protect_head",
        help="no job starts that would delay the head of the queue, as EASY has it",
        default="yes",
        choices=("yes", "no"),
    ),
    PolicyOption(
        name="shrink_needs_idle",
        help="jobs give nodes only while a node idles",
        default="no",
        choices=("yes", "no"),
    ),
)


def _maker(strategy: Strategy) -> Callable[[Mapping[str, Value]], Malleable]:
    def make(values: Mapping[str, Value]) -> Malleable:
        return Malleable(
            strategy=strategy,
            needs_idle=values["shrink_needs_idle"] == "yes",
            protects_head=values["protect_head"] == "yes",
            tick_us=seconds_to_us(float(values["tick"])),
            cost_us=seconds_to_us(float(values["cost"])),
            cost_a_node_us=seconds_to_us(float(values["cost_a_node"])),
        )

    return make


def conversion_of(values: Mapping[str, Value]) -> SizeConversion:
    """Return how requests become sizes.

    Raises
    ------
    UsageError
        Thresholds contradict each other.
    """

    def exact(name: str) -> Fraction:
        return Fraction(str(values[name]))

    efficiencies = Efficiencies(
        least=exact("efficiency_min"), preferred=exact("efficiency_preferred"), most=exact("efficiency_max")
    )
    if values["conversion"] == "amdahl":
        return Amdahl(efficiencies)
    if values["conversion"] == "downey":
        return Downey(efficiencies, int(values["average"]), float(values["sigma"]))
    return Fractions(exact("min_fraction"), exact("max_fraction"), efficiencies)


def prepare(workload: Workload, queues: PoolQueues, values: Mapping[str, Value], seed: int) -> Workload:
    """Return the workload with a share of its batch jobs malleable: the same for every strategy.

    A larger share has the jobs of a smaller one.

    Raises
    ------
    UsageError
        Thresholds contradict each other, or malleable jobs would share cores.
    InputError
        See ``read_sizes``.
    """
    conversion, nodes = conversion_of(values), queues.batch.nodes
    batch = np.flatnonzero(~workload.interactive)
    given: dict[int, Sizes] = {}
    if values["sizes"]:
        asked = zip(workload.number[batch].tolist(), workload.nodes[batch].tolist(), strict=True)
        given = read_sizes(Path(str(values["sizes"])), dict(asked), nodes)
        batch = batch[np.isin(workload.number[batch], list(given))]
    count = int(float(values["malleable_share"]) * len(batch) + 0.5)
    if count == 0:
        return workload
    if queues.batch.multiplicity > 1:
        raise UsageError("malleable jobs share no cores: their nodes take --multiplicity 1")
    chosen = batch[np.random.default_rng(seed).permutation(len(batch))[:count]]
    if given:
        sizes, which = [given[number] for number in workload.number[chosen].tolist()], np.arange(count)
    else:
        requests, which = np.unique(workload.nodes[chosen], return_inverse=True)
        sizes = [conversion.sizes(request, nodes) for request in requests.tolist()]
    lives = JobLives.of(workload.lives, workload.count)
    return replace(workload, lives=lives.with_sizes(chosen, sizes, which))


FAMILIES = tuple(
    Family(
        name=name,
        help=f"malleable jobs over EASY: {text}",
        make=_maker(strategy),
        options=OPTIONS,
        prepare=prepare,
        times_passes=True,
    )
    for name, (strategy, text) in STRATEGIES.items()
)
