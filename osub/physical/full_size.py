"""The thesis's trace at its own size, N12C12, simulated as the thesis does it (7.5.5): no cluster is needed.

Placement: least occupied node, lowest index, least occupied cores. Speed 1/(m x 1.2) on a core of m >= 2 busy
jobs; exact run times, no cost of scheduling. SQ with M = 1 to 4, and MQ with one to four interactive nodes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from osub.physical.layouts import INTERACTIVE_CAP
from osub.physical.outcome import ReplayOutcome, outcome_of_frame
from osub.physical.places import full_trace
from simulator.recording import job_frame, placement_arrays
from simulator.setting_choices import SimulationWords
from simulator.simulation import Cleaning, OversizeRule, SimulationResult
from simulator.simulation_session import SimulationSession
from workloads.swf import SwfTrace, write_swf
from workloads.trace.scaling import CORES, NODES

SYSTEM = f"N{NODES}C{CORES}"
OVERHEAD = "1.2"
CASES: dict[str, tuple[int, int | None]] = {
    "MQ 1+11": (1, 1),
    "MQ 2+10": (1, 2),
    "MQ 3+9": (1, 3),
    "MQ 4+8": (1, 4),
    "SQ M=1": (1, None),
    "SQ M=2": (2, None),
    "SQ M=3": (3, None),
    "SQ M=4": (4, None),
}
"""Multiplicity, and interactive nodes of MQ."""
SHARED = "SQ M=2"


@dataclass(frozen=True, slots=True)
class FullSize:
    """What came of the thesis's own size.

    Attributes
    ----------
    outcomes
        By case, one for each seed.
    places, finish_s
        Of the fifteen jobs of Table 7.8, under SQ with M = 2.
    """

    outcomes: dict[str, list[ReplayOutcome]]
    places: dict[int, str]
    finish_s: dict[int, float]

    @property
    def seeds(self) -> int:
        """How many draws were simulated."""
        return len(self.outcomes[SHARED])


def simulate_full_size(
    day: Callable[[int], SwfTrace], seeds: int, done: Callable[[str], None] = lambda _: None
) -> FullSize:
    """Simulate every case on the draws 1 to ``seeds``.

    Parameters
    ----------
    day
        The whole day by seed.
    seeds
        How many.
    done
        Called after each seed.
    """
    outcomes: dict[str, list[ReplayOutcome]] = {case: [] for case in CASES}
    with tempfile.TemporaryDirectory(prefix="osub-thesis-7-") as folder:
        path = Path(folder) / "trace.swf"
        for seed in range(1, seeds + 1):
            write_swf(path, day(seed))
            for case, (multiplicity, nodes) in CASES.items():
                outcomes[case].append(outcome_of_frame(job_frame(_simulated(path, multiplicity, nodes))))
            done(f"seed {seed}")
        write_swf(path, full_trace())
        first = _simulated(path, 2, None)
    numbers = first.workload.number.tolist()
    ends_s = (first.end_us / 1e6).tolist()
    return FullSize(outcomes, _places(first), dict(zip(numbers, ends_s, strict=True)))


def _simulated(path: Path, multiplicity: int, interactive_nodes: int | None) -> SimulationResult:
    words = SimulationWords(
        system=SYSTEM,
        multiplicity=multiplicity,
        queues="sq" if interactive_nodes is None else "mq",
        interactive_nodes=interactive_nodes,
        multiplicity_interactive=INTERACTIVE_CAP,
        overhead=OVERHEAD,
        placement="thesis",
    )
    return SimulationSession(path, words, Cleaning(oversize=OversizeRule.FAIL)).run()


def _places(result: SimulationResult) -> dict[int, str]:
    """Return where each job ran, as Table 7.8 writes it."""
    arrays = placement_arrays(result)
    found = {}
    for index, number in enumerate(result.workload.number.tolist()):
        parts = []
        for at in range(int(arrays.offsets[index]), int(arrays.offsets[index + 1])):
            first, count = int(arrays.node[at]), 1 if arrays.count is None else int(arrays.count[at])
            parts += [f"{first + more}({arrays.core_sets[arrays.cores[at]]})" for more in range(count)]
        found[number] = " ".join(parts)
    return found
