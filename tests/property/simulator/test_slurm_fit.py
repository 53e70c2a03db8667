"""A fit gives back what a run was made with, and never more than the family takes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.records import Run
from simulator.fit.fit_parameters import Fit, Parameter, longest_wait, period, phase, shortest
from simulator.fit.measured_run import Latencies
from simulator.fit.slurm_fit import configured, fit_run
from simulator.policies.slurm_family import FAMILY
from tests.fixtures.slurm_runs import SLURM_CONFIG, SYSTEM, slurm_run
from tests.fixtures.tier import choose, examples

LATENCIES = Latencies(submission_s=0.01, scheduling_s=0.05, launch_serial_s=0.02, launch_parallel_s=0.03)


def parameters(fit: Fit) -> dict[str, Parameter]:
    return {parameter.name: parameter for parameter in (*fit.policy, *fit.latencies)}


def fitted(run: Run) -> dict[str, Parameter]:
    return parameters(fit_run(run, SYSTEM, 1))


@pytest.mark.parametrize(
    ("tick", "interval", "completing"), [(1.0, 8.0, 0.0), (2.5, 15.0, 0.4), (4.0, 20.0, 1.5)]
)
@pytest.mark.parametrize("seed", range(1, choose(2, 3, 7)))
def test_a_run_gives_back_its_tick_interval_and_completing_time(
    tmp_path: Path, tick: float, interval: float, completing: float, seed: int
) -> None:
    settings = {"tick": tick, "delay": 0, "every": 0, "interval": interval, "completing": completing}
    found = fitted(slurm_run(tmp_path / "run", settings, latencies=LATENCIES, seed=seed))
    assert found["tick"].value == pytest.approx(tick, rel=0.05)
    assert found["interval"].value == pytest.approx(interval, rel=0.01)
    assert found["completing"].value == pytest.approx(completing, abs=0.2 * tick)
    assert found["scheduling_s"].value == pytest.approx(0.05, abs=0.1 * tick)
    assert found["delay"].value == 0
    for name in ("tick", "interval", "completing", "scheduling_s"):
        one = found[name]
        assert (one.source, one.low is None, one.high is None) == ("fitted", False, False)
        assert float(one.low or 0) <= float(one.value) <= float(one.high or 0)
    assert found["submission_s"].value == pytest.approx(0.01)
    assert (found["launch_serial_s"].value, found["launch_parallel_s"].value) == (0.02, 0.03)


@pytest.mark.parametrize("ends", ["wait", "at-once"])
def test_a_run_reports_whether_ends_wait_and_how_long_nodes_complete(tmp_path: Path, ends: str) -> None:
    settings = {"tick": 3, "delay": 0, "every": 0, "interval": 15, "completing": 0.5, "ends": ends}
    found = fitted(slurm_run(tmp_path / "run", settings, latencies=LATENCIES))
    assert found["ends"].value == ends
    assert found["completing"].value == pytest.approx(0.5, abs=0.15 if ends == "at-once" else 1.0)


def test_a_delay_between_looks_is_distinguished_from_their_tick(tmp_path: Path) -> None:
    settings = {"tick": 1, "delay": 4, "every": 0, "interval": 30}
    found = fitted(slurm_run(tmp_path / "run", settings, jobs=300))
    assert found["tick"].value == pytest.approx(1, rel=0.05)
    assert found["delay"].value == pytest.approx(4, rel=0.3)


def test_what_the_configuration_states_is_taken_whatever_the_starts_say(tmp_path: Path) -> None:
    settings = {"tick": 1, "delay": 0, "every": 0, "interval": 7, "completing": 0.3}
    found = fitted(slurm_run(tmp_path / "run", settings, config=SLURM_CONFIG))
    assert (found["interval"].value, found["interval"].source) == (12, "configuration")
    assert (found["delay"].value, found["delay"].note) == (1, "batch_sched_delay=1")
    assert found["depth"].note == "bf_max_job_test=500, Slurm's default"
    assert {found[name].source for name in ("tick", "completing")} == {"fitted"}


NAMES = [
    *("bf_interval", "bf_window", "sched_interval", "batch_sched_delay", "bf_max_job_test", "defer"),
    *("bf_resolution", "sched_min_interval", "bf_job_part_count_reserve", "", "BF_INTERVAL", "x"),
]
PARAMETERS = st.lists(
    st.tuples(
        st.sampled_from(NAMES), st.one_of(st.integers(-(10**12), 10**12).map(str), st.text(max_size=8))
    ),
    max_size=8,
).map(lambda pairs: ",".join(f"{name}={value}" for name, value in pairs))
KEYS = [
    *("Epilog", "SchedulerType", "PriorityType", "PriorityWeightAge", "PriorityWeightJobSize"),
    *("PriorityMaxAge", "PriorityCalcPeriod", "PriorityDecayHalfLife", "PriorityFavorSmall", "CompleteWait"),
    *("PriorityFlags", "PriorityWeightTRES", "PreemptType", "Other"),
]
WORDS = st.one_of(
    st.text(max_size=20),
    st.sampled_from(["priority/multifactor", "sched/backfill", "sched/builtin", "(null)", "7-00:00:00"]),
    st.sampled_from(["00:00:00", "99:99:99", "999999-00:00:00", "-1", "99999999999", "Yes", "0 sec"]),
)


@examples(120)
@given(
    parameters=st.one_of(PARAMETERS, st.text(max_size=60)),
    config=st.dictionaries(st.sampled_from(KEYS), WORDS),
)
def test_whatever_a_configuration_says_the_family_takes_it(parameters: str, config: dict[str, str]) -> None:
    found = configured(config | {"SchedulerParameters": parameters})
    values = FAMILY.values([f"{name}={stated.value}" for name, stated in found.stated.items()])
    FAMILY.make(values)
    assert all(stated.words for stated in found.stated.values())


GAPS = st.lists(st.floats(0, 1), min_size=60, max_size=120)


@examples(50)
@given(waits=GAPS, constant=st.floats(0, 2), longest=st.floats(0.5, 60), seed=st.integers(0, 10))
def test_estimates_move_with_what_is_added_to_every_gap(
    waits: list[float], constant: float, longest: float, seed: int
) -> None:
    gaps = [longest * wait for wait in waits]
    moved = [constant + gap for gap in gaps]
    assert shortest(moved).high == pytest.approx(shortest(gaps).high + constant, abs=1e-3)
    assert longest_wait(moved) == pytest.approx(longest_wait(gaps), abs=1e-6)


@examples(25)
@given(
    beat=st.floats(0.6, 40),
    steps=st.lists(st.sampled_from([1, 1, 2, 3, 5]), min_size=25, max_size=60),
    first=st.floats(0, 1),
    jitter=st.randoms(use_true_random=False),
)
def test_a_period_is_found_among_its_multiples_and_in_jitter(
    beat: float, steps: list[int], first: float, jitter: object
) -> None:
    at_s, instants = first * beat, []
    for step in [0, *steps, 1]:
        at_s += step * beat
        instants.append(at_s + jitter.uniform(0, 0.02 * beat))  # type: ignore[attr-defined]
    found = period(instants, 0.5, 0.1)
    assert found is not None
    assert found.value == pytest.approx(beat, rel=0.02)
    began = phase(instants[:10], beat, 0.1)
    assert began is not None
    away = (began.value - first * beat) % beat
    assert min(away, beat - away) < 0.05 * beat


@examples(25)
@given(st.lists(st.floats(0, 1000), max_size=80))
def test_instants_without_a_period_are_given_none_or_one_within_their_distances(
    instants: list[float],
) -> None:
    found = period(instants, 0.5, 0.1)
    assert found is None or 0.4 < found.value <= max(instants) - min(instants)
