"""Demand games: whenever a job works and sleeps, one that always works keeps its share of their core.

Each job of a shared node weighs as much as the other (its CPU group), so that one which is not held in the
other's slice gets half of the core there at most. Lending must not give it more by way of its slices.
"""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from gangd.core.scheduler_events import CpuSample, HoldMode, NodeReport, SliceUse
from tests.fixtures.core_bench import MS, Bench
from tests.fixtures.tier import examples

HONEST, CHEAT = 1, 2
REACH = 0.47
SLICE_US, SLICES, SETTLE = 250_000, 160, 40
WORK = st.sampled_from((0.0, 0.09, 0.19, 0.5, 1.0))
"""Parts of a slice in which the cheat works: none, below and above each threshold of demand, all."""
SITUATIONS = [(state, other) for state in ("busy", "idle", "waking") for other in (True, False)]


def share(work: dict[tuple[str, bool], float], rhythm: list[float], processes: int) -> float:
    """Return the share of a core that the honest job gets.

    The cheat works as ``work`` says for its state and whether the other runs in the slice, times ``rhythm``.
    """
    bench = Bench(1, 1, freeze_cap_ns=5000 * MS)
    for job in (HONEST, CHEAT):
        bench.job(job, {"n0": (0,)}, hold=HoldMode.FREEZE)
    bench.snapshot()
    got = 0.0
    for place in range(SLICES):
        bench.tick()
        number = bench.slice - 1
        owners = bench.scheduler.owners(number)
        runs = HONEST in owners
        samples, used = [], 0.0
        if CHEAT in owners:
            state = bench.state(CHEAT).value
            wanted = work.get((state, runs), 1.0) * rhythm[place % len(rhythm)]
            used = wanted / 2 if runs else wanted
            samples.append(sample(CHEAT, used, wanted * processes if runs else wanted, processes))
        if runs:
            samples.append(sample(HONEST, 1 - used, 1.0, 1))
        held = tuple(job for job in (HONEST, CHEAT) if job not in owners)
        bench.tell(NodeReport(bench.now_ns, "n0", (SliceUse(number, 0, 0, held, tuple(samples)),)))
        got += 1 - used if runs and place >= SETTLE else 0.0
    return got / (SLICES - SETTLE)


def sample(job: int, used: float, wanted: float, tasks: int) -> CpuSample:
    waited = max(0.0, wanted - used)
    return CpuSample(job, round(used * SLICE_US), round(waited * SLICE_US), SLICE_US, tasks)


RESTS_IN_ITS_OWN = {
    situation: 1.0 if situation[1] else 0.09 if situation[0] == "busy" else 0.0 for situation in SITUATIONS
}  # it works in the other's slices, and is thought idle for it rests in its own


@examples(40)
@example(work=RESTS_IN_ITS_OWN, rhythm=[1.0], processes=1)
@given(
    work=st.fixed_dictionaries(dict.fromkeys(SITUATIONS, WORK)),
    rhythm=st.lists(st.sampled_from((0.0, 0.09, 1.0)), min_size=1, max_size=12),
    processes=st.sampled_from((1, 16)),
)
def test_no_game_of_demand_takes_from_a_job_that_works(
    work: dict[tuple[str, bool], float], rhythm: list[float], processes: int
) -> None:
    assert share(work, rhythm, processes) >= REACH
