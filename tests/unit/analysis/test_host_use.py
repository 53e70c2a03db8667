"""A run on a host that others used is called unfit; the host's pace is taken out of errors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import polars as pl
import pytest

from analysis.comparison.comparison_tables import run_errors
from analysis.metrics.derived_columns import MetricOptions
from analysis.metrics.fitness import host_use, pace_of
from analysis.metrics.run_metrics import RunMetrics, measure
from analysis.report_parts import answered
from analysis.tables import metric_rows
from analysis.verdict import verdict_of
from analysis.verdict.verdict_in_terminal import opening, verdict_lines
from foundation.records import HOST, GangSettings, HostRecord, Run
from foundation.records.table_files import frame_of
from tests.unit.analysis.test_verdict import made_run


def on_host(run: Run, *, foreign: float, steal: float = 0.0, own: float | None = 1.0) -> Run:
    """Give a run samples of a host of two CPUs: seconds a second that others used and that were stolen."""
    samples = [
        HostRecord(
            at_s=float(second), length_s=1.0, host="h", cpus=2, load=2.5,
            used_s=(own or 0.0) + foreign, steal_s=steal, own_s=own,
        )
        for second in range(1, 60)
    ]  # fmt: skip
    return replace(run, host=frame_of(samples, HOST), jobs=in_a_minute(run.jobs))


def in_a_minute(jobs: pl.DataFrame) -> pl.DataFrame:
    return jobs.with_columns(start_s=pl.lit(10.0), end_s=pl.lit(50.0), submit_s=pl.lit(1.0))


def paced(run: Run, paces: list[float], **changes: object) -> Run:
    """Give a run's jobs these paces, one after the other."""
    several = [paces[number % len(paces)] for number in range(run.jobs.height)]
    jobs = run.jobs.with_columns(
        steps=pl.lit(100, pl.Int64),
        step_s=pl.lit(0.5),
        steps_cpu_s=pl.Series([50.0 * pace for pace in several]),
        **{name: pl.lit(value) for name, value in changes.items()},
    )
    return replace(run, jobs=jobs)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return made_run(tmp_path, "alone", wait_s=10, degradation=1.0, jobs=50)


def test_a_calm_host_is_fit_and_a_busy_one_is_not(run: Run) -> None:
    calm, busy = host_use(on_host(run, foreign=0.1)), host_use(on_host(run, foreign=0.7, steal=0.2))
    assert calm.foreign_share == pytest.approx(0.05)
    assert calm.unfit is None
    assert busy.load == 2.5
    assert (
        busy.unfit == "others used 35% and the hypervisor took 10% of its CPUs' time (10% in all is the most)"
    )
    assert host_use(on_host(run, foreign=0.7), most_taken=0.4).unfit is None


def test_only_the_time_in_which_jobs_ran_counts(run: Run) -> None:
    used = on_host(run, foreign=0.7)
    assert used.host is not None
    calm = used.host.with_columns(
        used_s=pl.when(pl.col("at_s").is_between(10, 51)).then(1.0).otherwise(pl.col("used_s"))
    )
    assert host_use(replace(used, host=calm)).foreign_share == 0.0


def test_what_is_not_known_is_null_and_no_fault(run: Run) -> None:
    nothing = host_use(run)
    assert (nothing.samples, nothing.load, nothing.foreign_share, nothing.steal_share) == (
        0,
        None,
        None,
        None,
    )
    assert (nothing.jobs, nothing.pace, nothing.pace_spread, nothing.unfit) == (0, None, None, None)
    unseen = host_use(on_host(run, foreign=0.7, own=None))
    assert unseen.foreign_share is None
    assert unseen.steal_share == 0.0
    assert unseen.unfit is None


def test_the_pace_of_a_host_that_drifts_makes_a_run_of_one_job_a_core_unfit(run: Run) -> None:
    use = host_use(paced(run, [1.0, 1.1, 1.5]))
    assert use.jobs == 50
    assert use.pace == pytest.approx(1.1)
    assert use.pace_spread == pytest.approx(1.5)
    assert use.unfit is not None
    assert "1.50 times as fast" in use.unfit
    assert host_use(paced(run, [1.0, 1.1, 1.2])).unfit is None
    shared = msgspec.structs.replace(run.info, multiplicity=2)
    assert host_use(replace(paced(run, [1.0, 1.1, 1.5]), info=shared)).unfit is None


def test_ranks_that_poll_on_shared_cores_have_no_pace(run: Run) -> None:
    wide = paced(run, [1.9], cores=2)
    shared = msgspec.structs.replace(run.info, multiplicity=2)
    assert host_use(replace(wide, info=shared)).pace is None
    gang = msgspec.structs.replace(shared, gang=GangSettings(kind="osub"))
    assert host_use(replace(wide, info=gang)).pace == pytest.approx(1.9)
    assert host_use(wide).pace == pytest.approx(1.9)


def test_a_verdict_on_a_contaminated_run_is_not_clear_and_says_why(tmp_path: Path) -> None:
    one = made_run(tmp_path, "alone", wait_s=1000, degradation=1.0)
    two = made_run(tmp_path, "naive", wait_s=10, degradation=1.0, multiplicity=2, seed=1)
    assert verdict_of([one, two]).findings[0].answer == "better"
    samples = on_host(two, foreign=0.9).host
    assert samples is not None
    dirty = replace(two, host=samples.with_columns(at_s=pl.col("at_s") + 500))
    verdict = verdict_of([one, dirty])
    assert verdict.findings[0].answer == "unclear"
    assert verdict.evidence[0].startswith("naive is unfit to judge by: others used 45%")
    assert list(verdict.unfit) == ["naive"]
    assert verdict_of([one, dirty], MetricOptions(most_taken=0.5)).findings[0].answer == "better"
    said = [str(line) for line in verdict_lines(verdict)]
    assert said[0].startswith("Nothing here can be concluded. naive is unfit to judge by: others used 45%")
    assert sum("unfit to judge by" in line for line in said) == 1
    first = answered(verdict)[0]
    assert (first.heading, first.tone) == ("Nothing here can be concluded.", "unclear")
    assert opening(verdict_of([one, two])) is None


def test_what_a_busy_host_adds_is_not_called_start_up(run: Run) -> None:
    """No job shares a core, and yet half of the time is others'."""
    real = replace(run, info=msgspec.structs.replace(run.info, kind="real"))
    slow = replace(real, jobs=in_a_minute(real.jobs).with_columns(dedicated_s=pl.lit(20.0)))
    assert any("is start-up" in note for note in measure(slow).notes)
    busy = replace(on_host(real, foreign=1.0), jobs=slow.jobs)
    assert [note for note in measure(busy).notes if "start-up" in note] == []


def test_no_run_is_best_that_is_unfit_or_was_cut(tmp_path: Path) -> None:
    runs = [
        made_run(tmp_path, name, wait_s=wait_s, degradation=1, multiplicity=number)
        for number, (name, wait_s) in enumerate((("slow", 1000), ("quick", 10), ("mean", 100)), start=1)
    ]
    slow, quick, mean = map(measure, runs)

    def best(*several: RunMetrics) -> tuple[bool, ...]:
        return next(row.best for row in metric_rows(several) if row.name.startswith("wait, mean"))

    assert best(slow, quick, mean) == (False, True, False)
    unfit = msgspec.structs.replace(quick, unfit="busy")
    assert best(slow, unfit, mean) == (False, False, True)
    assert best(slow, unfit) == (False, False)
    every = quick.kinds["all"]
    states = {"COMPLETED": every.jobs - 1, "CANCELLED": 1}
    cut = msgspec.structs.replace(
        quick, kinds=quick.kinds | {"all": msgspec.structs.replace(every, states=states)}
    )
    assert best(slow, cut, mean) == (False, False, True)


def test_the_metrics_and_their_table_have_the_host(run: Run) -> None:
    metrics = measure(on_host(paced(run, [1.05]), foreign=0.6))
    assert any("Unfit to judge by" in note for note in metrics.notes)
    cells = {row.name: row.cells[0] for row in metric_rows([metrics]) if row.group == "Host"}
    assert cells["CPU time that others used"] == "30.0%"
    assert cells["pace of the jobs, median"] == "1.05"
    assert not [row for row in metric_rows([measure(run)]) if row.group == "Host"]


def test_errors_are_reported_as_they_are_and_at_the_hosts_pace(tmp_path: Path) -> None:
    real = paced(made_run(tmp_path, "real", wait_s=10, degradation=1.1, noise=0.0), [1.1])
    simulated = made_run(tmp_path, "sim", wait_s=10, degradation=1.0, noise=0.0, kind="simulated")
    errors = run_errors(real, simulated)
    assert errors.run_time.bias == pytest.approx(1 / 1.1 - 1)
    assert errors.run_time_at_pace.bias == pytest.approx(0.0, abs=1e-9)
    fitted = msgspec.structs.replace(simulated.info, options={"pace": 1.1})
    assert run_errors(real, replace(simulated, info=fitted)).run_time_at_pace.bias == pytest.approx(
        1 / 1.1 - 1
    )
    assert (
        run_errors(made_run(tmp_path, "x", wait_s=1, degradation=1.0), simulated).run_time_at_pace.jobs == 0
    )


def test_the_hosts_pace_takes_five_jobs_and_half_of_those_compared(tmp_path: Path) -> None:
    real = made_run(tmp_path, "real", wait_s=10, degradation=1.1, jobs=20)
    simulated = made_run(tmp_path, "sim", wait_s=10, degradation=1.0, jobs=20, kind="simulated")

    def known(jobs: int) -> Run:
        some = paced(real, [1.25])
        reported = pl.when(pl.col("trace_job") <= jobs).then(pl.col("steps_cpu_s"))
        return replace(some, jobs=some.jobs.with_columns(reported.alias("steps_cpu_s")))

    first = int(real.jobs["trace_job"].to_list()[0]) - 1
    for jobs, enough in ((1, False), (4, False), (9, False), (10, True), (20, True)):
        at_pace = run_errors(known(first + jobs), simulated).run_time_at_pace
        assert (at_pace.jobs, at_pace.median is not None, at_pace.bias is not None) == (jobs, enough, enough)


def test_the_pace_of_a_coupled_job_is_not_known_where_its_ranks_poll(tmp_path: Path) -> None:
    run = paced(made_run(tmp_path, "gang", wait_s=10, degradation=1.1), [1.2], cores=2)
    shared = msgspec.structs.replace(run.info, multiplicity=2)

    def known(gang: GangSettings) -> bool:
        info = msgspec.structs.replace(shared, gang=gang)
        return host_use(replace(run, info=info)).pace is not None

    assert known(GangSettings(kind="osub", hold="freeze"))
    assert not known(GangSettings(kind="osub", hold="yield"))
    assert not known(GangSettings(kind="none"))


def test_two_real_runs_are_compared_each_at_its_own_pace(tmp_path: Path) -> None:
    one = paced(made_run(tmp_path, "one", wait_s=10, degradation=1.0, noise=0.0), [1.0])
    two = paced(made_run(tmp_path, "two", wait_s=10, degradation=1.2, noise=0.0), [1.2])
    assert run_errors(one, two).run_time_at_pace.bias == pytest.approx(0.0, abs=1e-9)


def test_a_job_that_failed_has_no_pace(run: Run) -> None:
    failed = paced(run, [1.0], state="FAILED")
    assert failed.jobs.select(pace_of(failed)).to_series().null_count() == 50
