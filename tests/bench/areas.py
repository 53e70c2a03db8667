"""Which benchmarks tell the figures of an area, and how large they are in a tiny, a quick and a long run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.fixtures.bench import Size

_ALL = "tests/benchmarks/test_figures_of_all_areas.py"


@dataclass(frozen=True, slots=True)
class Area:
    """An area's benchmarks.

    name: as ``--only`` takes it.
    tests: node ids of pytest.
    sizes: environment of the benchmarks by size of the run.
    minutes: about how long a quick run takes on two cores.
    """

    name: str
    tests: tuple[str, ...]
    minutes: float
    sizes: Mapping[Size, Mapping[str, str]] = field(default_factory=dict)


AREAS = (
    Area("imports", (f"{_ALL}::test_import_times",), 0.3),
    Area("install", (f"{_ALL}::test_install_sizes",), 0.2),
    Area("simulator", (f"{_ALL}::test_simulator_next_to_the_plain_reference",), 0.7),
    Area("report", (f"{_ALL}::test_a_report_s_size_and_time",), 0.5),
    Area("predictor", (f"{_ALL}::test_the_predictor_s_answers",), 0.2),
    Area("snapshot", (f"{_ALL}::test_a_snapshot_of_slurm_s_jobs",), 0.3),
    Area("sweep", (f"{_ALL}::test_a_sweep_s_overhead",), 1.0),
    Area(
        "lateness",
        ("tests/benchmarks/test_gang_agent.py::test_lateness_and_own_cpu_with_busy_cores[yield--0.25]",),
        0.6,
        {"tiny": {"OSUB_AGENT_S": "3"}},
    ),
    Area(
        "crowd",
        ("tests/benchmarks/test_gang_crowd.py::test_cost_of_deciding",),
        0.5,
        {"tiny": {"OSUB_CROWD": "20"}, "quick": {"OSUB_CROWD": "1000"}},
    ),
    Area(
        "takeover",
        ("tests/benchmarks/test_gang_takeover.py::test_takeovers",),
        1.0,
        {"tiny": {"OSUB_TAKEOVERS": "2"}, "quick": {"OSUB_TAKEOVERS": "6"}},
    ),
    Area("gangd", (f"{_ALL}::test_coupled_jobs_under_each_gang_scheduler",), 5.0),
)


def areas_named(names: tuple[str, ...]) -> tuple[Area, ...]:
    """Return the areas of these names, or all; raises ValueError for one that is none."""
    known = {area.name: area for area in AREAS}
    strange = [name for name in names if name not in known]
    if strange:
        raise ValueError(f"there is no area {strange[0]}; there are {', '.join(known)}")
    return tuple(known[name] for name in names) if names else AREAS
