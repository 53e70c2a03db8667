"""The study of time-sharing: the trace that it draws, bins, a small survey, and every claim judged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from analysis.claims import ClaimVerdict
from foundation.errors import InputError
from foundation.units import US_PER_S
from simulator.experiments import timesharing_claims
from simulator.experiments.edison import (
    BINS,
    DAY_S,
    LOAD,
    NODES,
    SERIAL,
    BinEdges,
    Edison,
    MachineWorld,
    binned,
    crossing_s,
    dedicated_s,
    generated,
    of_trace,
)
from simulator.experiments.timesharing_study import drawings, learnt, tables
from simulator.experiments.timesharing_survey import (
    BATCH,
    FORMS,
    SETTINGS,
    TimesharingSurvey,
    steps_of,
    survey,
)
from simulator.timeshare.timeshare_pool import MemoryForm, draw_memory, draw_memory_below


@pytest.fixture(scope="module")
def small() -> TimesharingSurvey:
    edison = Edison(nodes=16, days=2, warm_up_days=1, spell_day=1, jobs_a_day=30)
    world = MachineWorld(
        name="small", summary="", nodes=16, days=2, warm_up_us=DAY_S * US_PER_S // 4,
        spell_us=DAY_S * US_PER_S, draw=edison.draw,
    )  # fmt: skip
    steps: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OSUB_JIT", "0")
        found = survey(world, 2, steps.append)
    assert len(steps) == steps_of(2)
    return found


@pytest.mark.slow
def test_every_claim_is_judged_once(small: TimesharingSurvey) -> None:
    rows = timesharing_claims.claim_rows(small)
    assert msgspec.json.encode(rows)
    assert sorted(int(row.id[1:]) for row in rows) == list(range(1, 33))
    assert all(row.ours and row.paper for row in rows)
    assert next(row for row in rows if row.id == "T27").verdict == "holds"


def test_judgements_of_equal_numbers_of_numpy_are_plain_data() -> None:
    values = [np.float64(2.0), np.float64(2.0)]
    for judged in (timesharing_claims.direction(values), timesharing_claims.over_settings({"a": values})):
        assert b"2.0" in msgspec.json.encode(judged)


@pytest.mark.slow
def test_few_days_are_another_world_for_utilisation_alone(small: TimesharingSurvey) -> None:
    (days,) = (one for one in timesharing_claims.world_of(small) if one.name == "days")
    assert (days.paper, days.ours, days.is_alike) == (600, 2, False)
    assert "T5" in days.claims
    assert not days.claims & (timesharing_claims.MEMORY_CLAIMS - {"T5"})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("slowdown", "where"), [(1.0, ": 99%"), (1e6, "none of those tried; not where: 99%")]
)
def test_for_which_memory_time_sharing_is_better_follows_from_the_runs(
    small: TimesharingSurvey, slowdown: float, where: str
) -> None:
    outcomes = {
        setting: of if setting == BATCH else [replace(one, mean=slowdown) for one in of]
        for setting, of in small.outcomes.items()
    }
    outcomes[BATCH] = [replace(one, mean=10.0 + seed) for seed, one in enumerate(outcomes[BATCH])]
    assert where in learnt(replace(small, outcomes=outcomes))[1]


@pytest.mark.slow
def test_tables_and_figures_are_drawn(small: TimesharingSurvey) -> None:
    settings, sizes = tables(small)
    assert [row[0] for row in settings.rows] == [str(setting) for setting in SETTINGS]
    assert len(sizes.rows) == 4
    assert len(drawings(small)) == 6


@pytest.mark.slow
def test_the_drawn_trace_has_the_papers_sizes_and_load() -> None:
    jobs = Edison(days=40, warm_up_days=6, spell_day=20).draw(1)
    use = (jobs.nodes * jobs.run_us).astype(float)
    assert len(jobs.nodes) / 40 == pytest.approx(4000, rel=0.02)
    assert (jobs.nodes < 32).mean() == pytest.approx(0.9, abs=0.005)
    assert use[jobs.nodes > 100].sum() / use.sum() == pytest.approx(0.5, abs=0.05)
    assert use[jobs.nodes > 1000].sum() / use.sum() == pytest.approx(0.2, abs=0.05)
    after = jobs.submit_us >= 6 * DAY_S * US_PER_S
    assert use[after].sum() / (34 * DAY_S * US_PER_S * NODES) == pytest.approx(LOAD, rel=0.001)
    assert jobs.run_us.min() >= 10 * US_PER_S
    assert (jobs.request_us >= jobs.run_us).all()


def test_the_same_seed_draws_the_same_jobs() -> None:
    one, again, other = (Edison(days=3, warm_up_days=1, spell_day=2).draw(seed) for seed in (1, 1, 2))
    assert (one.run_us == again.run_us).all()
    assert (one.memory == again.memory).all()
    assert len(one.run_us) != len(other.run_us) or (one.run_us != other.run_us).any()


def test_memory_is_low_for_most_and_fits_a_node() -> None:
    drawn = draw_memory(100_000, 1)
    assert 1 <= drawn.min() <= drawn.max() <= 1000
    assert np.median(drawn) == pytest.approx(20, abs=2)
    assert (drawn < 600).mean() > 0.9


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("share", [0.97, 0.95, 0.92, 0.9])
def test_memory_is_drawn_to_what_the_paper_prints(form: MemoryForm, share: float) -> None:
    drawn = draw_memory_below(100_000, 1, share, form)
    assert 1 <= drawn.min() <= drawn.max() <= 1000
    assert (drawn < 600).mean() == pytest.approx(share, abs=0.005)
    assert (drawn == draw_memory_below(100_000, 1, share, form)).all()


@pytest.mark.slow
def test_few_days_have_the_papers_sizes_too() -> None:
    jobs = generated(12).draw(1)
    use = (jobs.nodes * jobs.run_us).astype(float)
    assert use[jobs.nodes > 100].sum() / use.sum() == pytest.approx(0.5, rel=0.05)
    assert use[jobs.nodes > 1000].sum() / use.sum() == pytest.approx(0.2, rel=0.1)


@pytest.mark.slow
def test_what_follows_from_memory_is_judged_over_a_range_of_it(small: TimesharingSurvey) -> None:
    """A claim that holds where memory hardly matters says so, and is judged as the paper prints memory."""
    judged = {row.id: row for row in timesharing_claims.claim_rows(small)}
    assert all("of the memory:" in judged[name].note for name in timesharing_claims.MEMORY_CLAIMS)
    full = {
        setting: [replace(one, at_once=0.5 + one.at_once / 1e6 if setting.memory else 1.0) for one in of]
        for setting, of in small.outcomes.items()
    }
    row = next(row for row in timesharing_claims.claim_rows(replace(small, outcomes=full)) if row.id == "T29")
    assert row.verdict is not ClaimVerdict.HOLDS
    assert row.note.endswith("99% (hardly any)")


def test_bins_are_logarithmic_and_hold_every_job() -> None:
    grid = BinEdges.of(5000, 100_000)
    assert grid.size_of(np.array([1, 2, 5000])).tolist() == [0, 2, BINS - 1]
    assert grid.length_of(np.array([1.0, 10.0, 100_000.0])).tolist() == [0, 0, BINS - 1]
    found = binned(np.array([0, 0, 1]), np.array([0, 0, 1]), np.array([1.0, 3.0, 5.0]), (2, 2))
    assert found.means[0, 0] == 2
    assert np.isnan(found.means[0, 1])


def test_the_crossing_is_where_the_ratio_last_falls_below_one() -> None:
    edges = np.array([10.0, 100.0, 1000.0, 10_000.0, 100_000.0])
    counts = np.full((1, 4), 10, dtype=np.int64)
    rows, columns = np.zeros(40, dtype=np.int64), np.repeat(np.arange(4), 10)
    batch = binned(rows, columns, np.repeat([100.0, 1.0, 10.0, 1.0], 10), (1, 4))
    share = binned(rows, columns, np.repeat([1.0, 10.0, 1.0, 10.0], 10), (1, 4))
    assert (batch.counts == counts).all()
    assert crossing_s(batch, share, 0, edges) == pytest.approx(10_000)
    assert crossing_s(batch, batch, 0, edges) == edges[0]


def test_the_amdahl_application_has_its_efficiency() -> None:
    assert dedicated_s(1, SERIAL) / dedicated_s(960, SERIAL) / 960 == pytest.approx(0.49)


def test_a_real_trace_is_compressed_to_the_load(tmp_path: Path) -> None:
    lines = [
        f"{n} {n * 600} -1 {600 + n % 7 * 900} 3 -1 -1 3 7200 -1 1 1 1 -1 1 -1 -1 -1" for n in range(1, 300)
    ]
    path = tmp_path / "t.swf"
    path.write_text("; MaxNodes: 4\n; MaxProcs: 8\n" + "\n".join(lines) + "\n")
    world = of_trace(path)
    jobs = world.draw(1)
    assert world.nodes == 4
    assert set(jobs.nodes.tolist()) == {2}
    load = float(jobs.nodes @ jobs.run_us) / float(jobs.submit_us.max()) / 4
    assert load == pytest.approx(LOAD, rel=0.01)
    path.write_text("; Version: 2.2\n" + "\n".join(lines) + "\n")
    with pytest.raises(InputError, match="neither MaxNodes nor MaxProcs"):
        of_trace(path)
    path.write_text("; MaxNodes: 4\n1 0 -1 5 3 -1 -1 3 7200 -1 1 1 1 -1 1 -1 -1 -1\n")
    with pytest.raises(InputError, match="no job of 10 s or more"):
        of_trace(path)
