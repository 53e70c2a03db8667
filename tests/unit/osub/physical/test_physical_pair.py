"""The pair of Table 7.4: each replay measures itself, and what is not fit to judge by does not count."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import polars as pl
import pytest

from analysis.claims import ClaimVerdict
from foundation.records import HOST, HostRecord, Run
from foundation.records.table_files import frame_of
from osub.physical.figures import pairs
from osub.physical.folder import Results
from osub.physical.found import findings, pair_findings, pair_rows
from osub.physical.layouts import DEDICATED, GANGD, NAIVE
from osub.physical.pair import PairTrial, pair_table, pair_trace, pair_trial, why_unfit
from osub.physical.plan import PAIR, PlannedReplay
from osub.physical.tables import table_7_4
from tests.unit.analysis.test_verdict import made_run
from tests.unit.osub.physical.made import day_trace, first_trace, pair_found, results, small_plan

STEPS = 12_000
ALONE = (0.5, 6.5)
Times = tuple[float, float]


@pytest.fixture(name="replayed")
def _replayed(tmp_path: Path) -> Callable[..., Run]:
    """A replay of the pair with these starts and ends."""
    made = made_run(tmp_path, "pair", wait_s=1, degradation=1.0, jobs=3, multiplicity=2)

    def replayed(alone: Times, first: Times, second: Times, **columns: object) -> Run:
        starts, ends = zip(alone, first, second, strict=True)
        jobs = made.jobs.with_columns(
            start_s=pl.Series(starts), end_s=pl.Series(ends), steps=pl.lit(STEPS, pl.Int64)
        )
        return replace(made, jobs=jobs.with_columns(**{name: pl.lit(of) for name, of in columns.items()}))

    return replayed


def with_foreign_load(run: Run, foreign_s: Callable[[int], float]) -> Run:
    """Give a run samples of a host of two CPUs of which others used so much in each second."""
    samples = [
        HostRecord(
            at_s=float(second), length_s=1.0, host="h", cpus=2, load=2.0,
            used_s=1.0 + foreign_s(second), steal_s=0.0, own_s=1.0,
        )
        for second in range(1, 31)
    ]  # fmt: skip
    return replace(run, host=frame_of(samples, HOST))


def test_two_that_take_twice_as_long_as_one_just_before_them_lose_nothing(
    replayed: Callable[..., Run],
) -> None:
    found = pair_trial(replayed(ALONE, (9.0, 21.0), (9.0, 20.0)))
    assert isinstance(found, PairTrial)
    assert found.alone == pytest.approx(STEPS / 6)
    assert found.joint == pytest.approx(2 * STEPS / 12)
    assert found.loss == pytest.approx(0.0)


def test_a_slower_host_slows_the_one_alone_and_the_two_alike(replayed: Callable[..., Run]) -> None:
    fast = pair_trial(replayed((0.0, 6.0), (9.0, 24.0), (9.0, 24.0)))
    slow = pair_trial(replayed((0.0, 7.5), (9.0, 27.75), (9.0, 27.75)))
    assert isinstance(fast, PairTrial)
    assert isinstance(slow, PairTrial)
    assert fast.loss == pytest.approx(slow.loss) == pytest.approx(0.2)


def test_one_that_has_the_cores_to_itself_for_a_while_adds_nothing_to_the_joint_speed(
    replayed: Callable[..., Run],
) -> None:
    found = pair_trial(replayed((0.0, 6.0), (9.0, 15.0), (9.0, 21.0)))
    assert isinstance(found, PairTrial)
    assert sum(found.each) == pytest.approx(1.5 * found.alone)
    assert found.loss == pytest.approx(0.0)
    assert found.unfairness == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("times", "why"),
    [
        (((0.5, 9.5), (9.0, 21.0), (9.0, 21.0)), "still running as the two began"),
        ((ALONE, (9.0, 15.0), (15.5, 21.0)), "did not run at the same time"),
        ((ALONE, (9.0, None), (9.0, 21.0)), "does not tell its times"),
    ],
)
def test_a_trial_that_compares_nothing_is_not_judged(
    replayed: Callable[..., Run], times: tuple[Times, Times, Times], why: str
) -> None:
    found = pair_trial(replayed(*times))
    assert isinstance(found, str)
    assert why in found


def test_a_job_that_failed_or_lacks_its_steps_leaves_the_trial_out(replayed: Callable[..., Run]) -> None:
    times = ALONE, (9.0, 21.0), (9.0, 21.0)
    assert "did not complete" in str(pair_trial(replayed(*times, state="FAILED")))
    assert "its steps" in str(pair_trial(replayed(*times, steps=None)))
    run = replayed(*times)
    assert "did not complete" in str(pair_trial(replace(run, jobs=run.jobs.head(2))))


def test_others_on_the_host_leave_the_trial_out_also_if_only_next_to_the_one_alone(
    replayed: Callable[..., Run],
) -> None:
    run = replayed(ALONE, (9.0, 29.0), (9.0, 29.0))
    item = PlannedReplay(workload=PAIR, layout=GANGD.key, trial=1)
    assert why_unfit(with_foreign_load(run, lambda _: 0.0), item) is None
    assert str(why_unfit(with_foreign_load(run, lambda _: 1.0), item)).startswith("others used 50%")
    early = why_unfit(with_foreign_load(run, lambda second: 0.6 if second < 7 else 0.0), item)
    assert str(early).startswith("while one ran alone others used")
    late = why_unfit(with_foreign_load(run, lambda second: 0.25 if second > 10 else -0.1), item)
    assert str(late).startswith("while the two ran others used")


def test_the_replay_that_only_reports_the_steps_is_one_job_and_no_trial() -> None:
    plan = small_plan()
    assert [job.job_number for job in pair_trace(plan, DEDICATED.key).jobs] == [1]
    alone, first, second = pair_trace(plan, NAIVE.key).jobs
    assert {job.procs for job in (alone, first, second)} == {2}
    assert first.submit_s == plan.pair_begins_s > (alone.run_s or 0) * 1.2
    assert second.submit_s - first.submit_s < 0.2


def test_all_three_jobs_make_the_same_steps() -> None:
    trace = pair_trace(small_plan(), NAIVE.key)
    rows = [row.split(",", 1)[1] for row in pair_table(trace, {1: (2, 950)}).splitlines()[1:]]
    assert (len(rows), set(rows)) == (3, {"rrba,--app lu --class S --steps 950"})
    assert "--target-s" in pair_table(pair_trace(small_plan(), DEDICATED.key), {})


def of_losses(**losses: list[float]) -> Results:
    """Return results in which the pair lost so much under each layout."""
    found = {
        f"sq-m2-{layout}": {trial: pair_found(100 * (1 - loss)) for trial, loss in enumerate(of, start=1)}
        for layout, of in losses.items()
    }
    return results(pairs=found)


def sentences(**losses: list[float]) -> str:
    return "\n".join(pair_findings(of_losses(**losses)))


def test_a_loss_is_reported_where_the_interval_is_above_zero() -> None:
    said = sentences(naive=[0.13, 0.15, 0.14], gangd=[0.01, 0.02, 0.015])
    assert "Naive two coupled jobs on the same cores lose 14 [" in said
    assert "in 3 trials (thesis, 12 ranks: 76%)" in said
    assert "gangd loses 12.5 [" in said
    assert "percentage points less than naive sharing" in said
    assert "undecided" not in said


def test_an_interval_that_includes_zero_is_undecided() -> None:
    said = sentences(naive=[0.3, -0.1, 0.2], gangd=[-0.2, 0.1, 0.0])
    assert "Naive it is undecided whether" in said
    assert "Under gangd it is undecided whether" in said
    assert "Whether gangd loses less than naive sharing is undecided" in said


def test_a_gain_and_a_single_trial_are_reported_as_what_they_are() -> None:
    assert "are together 3 [" in sentences(gangd=[-0.03, -0.031, -0.029])
    assert "it is undecided what two coupled jobs on the same cores lose: 14%" in sentences(naive=[0.14])
    assert sentences() == ""


def test_gangd_that_loses_more_is_said_to() -> None:
    assert "points more than naive sharing" in sentences(naive=[0.01, 0.02, 0.015], gangd=[0.2, 0.21, 0.22])


def test_trials_that_only_one_layout_has_are_not_compared_with_others() -> None:
    found = of_losses(naive=[0.1, 0.12, 0.11], gangd=[])
    rows = {row.id: row for row in pair_rows(found)}
    assert rows["R1"].verdict is ClaimVerdict.HOLDS
    assert rows["R3"].verdict is ClaimVerdict.NOT_COMPARABLE


def test_trials_left_out_are_counted_and_named() -> None:
    found = of_losses(naive=[0.1, 0.2], gangd=[0.0, 0.01])
    left = {"pair-sq-m2-slurm-1": "others used 30% of its CPUs' time", "pair-sq-m1-1": "no trial"}
    found = replace(found, unfit=left)
    said = "\n".join(pair_findings(found))
    assert "Of 5 trials of the pair 1 is left out" in said
    assert "pair-sq-m2-slurm-1: others used 30%" in said
    notes = [note for note in table_7_4(found).notes if note.startswith("Left out")]
    assert notes == ["Left out: pair-sq-m2-slurm-1, others used 30% of its CPUs' time."]


def test_the_table_has_what_was_measured_side_by_side() -> None:
    table = table_7_4(of_losses(naive=[0.1], gangd=[0.0, 0.01]))
    assert table.columns[1:3] == ("SQ M=2 naive, alone", "SQ M=2 naive, together (each)")
    assert table.rows[0] == ("1", "100", "90 (45 + 45)", "100", "100 (50 + 50)")
    assert table.rows[1][:3] == ("2", "-", "-")
    assert all(len(row) == len(table.columns) for row in table.rows)


def test_bars_are_as_high_as_the_joint_speed() -> None:
    bars = [bar for bar in pairs(of_losses(naive=[0.2, 0.2])).data if bar.type == "bar"]
    assert sum(bar.y[0] for bar in bars) == pytest.approx(0.8)


def test_a_study_of_the_pair_alone_shows_nothing_else() -> None:
    plan = small_plan()
    layouts = tuple(key for key in plan.layouts if not key.startswith("mq"))
    alone = msgspec.structs.replace(
        plan, only="pair", layouts=layouts, draws=(), short_s=0.0, long_s=0.0, places=False
    )
    found = findings(results(alone, real={}, simulated={}), first_trace(), day_trace())
    assert [row.id for row in found.claims] == ["R1", "R2", "R3"]
    assert [table.name for table in found.tables] == ["Table 7.4"]
    assert len(found.figures()) == 1
    assert any("gangd loses" in fact for fact in found.facts)
    assert not any("First hours" in fact or "own size" in fact for fact in found.facts)
