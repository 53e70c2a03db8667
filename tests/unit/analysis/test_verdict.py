"""The verdict: clear gains are stated, noise is not, and a simulation of a real run is no setting."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import msgspec
import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.comparison.compared_runs import compared
from analysis.pages import TableCell
from analysis.report_parts import answered, paragraphs
from analysis.verdict import Verdict, verdict_of
from analysis.verdict.paired_differences import batch_means, welch
from analysis.verdict.verdict_in_terminal import gain_rows, gains
from analysis.verdict.verdict_page import differences_section
from foundation.errors import UsageError
from foundation.records import JOBS, GangSettings, JobRecord, Run, RunInfo, load_run, write_run
from foundation.records.table_files import frame_of
from tests.fixtures.example_runs import example_run
from tests.fixtures.tier import examples

Draw = dict[str, float]


def made_run(
    folder: Path,
    label: str,
    *,
    wait_s: float,
    degradation: float,
    jobs: int = 100,
    noise: float = 0.2,
    seed: int = 0,
    multiplicity: int = 1,
    gang: bool = False,
    kind: str = "real",
    block_jobs: int | None = None,
) -> Run:
    """Write a run whose jobs wait and degrade about so much."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(1, jobs + 1):
        submit, dedicated = 10.0 * number, 100.0
        waited = max(0.0, wait_s * (1 + noise * rng.standard_normal()))
        ran = dedicated * max(0.1, degradation * (1 + noise * rng.standard_normal()))
        rows.append(
            JobRecord(
                job_id=number, trace_job=number, kind="batch", nodes=1, cores=1, due_s=submit,
                submitted_s=submit, submit_s=submit, start_s=submit + waited,
                end_s=submit + waited + ran, dedicated_s=dedicated, state="COMPLETED",
            )
        )  # fmt: skip
    info = RunInfo(
        kind="simulated" if kind == "simulated" else "real", label=label, trace_name="made",
        system="N2C2", queues="sq", policy="easy", multiplicity=multiplicity,
        gang=GangSettings(kind="osub", quantum_ms=250, hold="yield") if gang else GangSettings(),
        started="2025-01-02T03:04:05Z", wall_s=1.0, cpu_s=1.0, options={"block_jobs": block_jobs},
    )  # fmt: skip
    (trace := folder / f"{label}.swf").write_text("; made\n", encoding="utf-8")
    write_run(folder / label, info, trace, frame_of(rows, JOBS))
    return load_run(folder / label)


def answers(verdict: Verdict) -> list[tuple[str, str, str]]:
    return [(one.question, one.other, one.answer) for one in verdict.findings]


def test_sharing_gangs_and_their_absence_are_each_judged(tmp_path: Path) -> None:
    alone = made_run(tmp_path, "alone", wait_s=1000, degradation=1.0)
    naive = made_run(tmp_path, "naive", wait_s=100, degradation=2.0, multiplicity=2, seed=1)
    gang = made_run(tmp_path, "gang", wait_s=100, degradation=1.5, multiplicity=2, gang=True, seed=2)
    verdict = verdict_of([alone, naive, gang])
    assert answers(verdict) == [
        ("setting", "naive", "better"),
        ("setting", "gang", "better"),
        ("gang", "gang", "better"),
    ]
    assert verdict.answer.startswith(
        "Two jobs a core under gangd, the best of 2 settings against alone: waits "
    )
    assert verdict.answer.endswith(": sharing helps this workload.")
    words = " ".join(verdict.findings[0].sentences)
    assert "Waiting got shorter by 90% [" in words
    assert "It cost them time on cores: 1.97 times" in words
    assert "In all, a job was done sooner" in words
    assert "of the cost of sharing away" in verdict.findings[2].sentences[0]
    (evidence,) = verdict.evidence
    assert evidence.startswith("Evidence: 100 jobs in one run each; 95% intervals over batches of them.")


def assuming(run: Run, overhead: str, **elsewhere: float) -> Run:
    """Return a simulated run that assumed a C_o, with the mean turnaround at others (``at_1_4=300``)."""
    means = {
        name.removeprefix("at_").replace("_", "."): {"turnaround_s": mean, "degradation": 2.0, "wait_s": 0.0}
        for name, mean in elsewhere.items()
    }
    options: dict[str, str | None] = {"overhead": overhead, "sharing": None}
    info = msgspec.structs.replace(run.info, options=options, other_overheads=means)
    return dataclasses.replace(run, info=info)


def test_a_simulated_verdict_names_the_overhead_that_it_assumes_and_what_would_change(tmp_path: Path) -> None:
    alone = made_run(tmp_path, "alone", wait_s=200, degradation=1.0, kind="simulated")
    shared = made_run(tmp_path, "shared", wait_s=10, degradation=1.5, multiplicity=2, kind="simulated")
    alone, plain = assuming(alone, "1.2"), assuming(shared, "1.2")
    verdict = verdict_of([alone, assuming(shared, "1.2", at_1_0=150, at_1_4=450)])
    assert verdict.answer.startswith("Two jobs a core, assuming C_o = 1.2: waits ")
    message = verdict.findings[0].sentences[-1]
    assert "at 1.0 run times would be" in message
    assert "sooner, at 1.4" in message
    assert message.endswith("So the answer depends on C_o: measure it.")
    assert "depends" not in verdict_of([alone, assuming(shared, "1.2", at_1_0=150)]).findings[0].sentences[-1]
    assert "was not simulated" in verdict_of([alone, plain]).findings[0].sentences[-1]
    cheap, dear = (
        assuming(shared, "1.0"),
        assuming(
            made_run(tmp_path, "dear", wait_s=10, degradation=1.9, multiplicity=2, kind="simulated"), "1.4"
        ),
    )
    assert "assum" not in verdict_of([cheap, dear]).answer


def test_the_wrong_side_is_called_worse(tmp_path: Path) -> None:
    alone = made_run(tmp_path, "alone", wait_s=10, degradation=1.0)
    naive = made_run(tmp_path, "naive", wait_s=10, degradation=1.5, multiplicity=2)
    gang = made_run(tmp_path, "gang", wait_s=10, degradation=1.9, multiplicity=2, gang=True)
    verdict = verdict_of([alone, naive, gang])
    assert [answer for _, _, answer in answers(verdict)] == ["worse"] * 3
    assert "Gang scheduling made it worse" in verdict.findings[2].sentences[0]


def test_noise_is_no_gain(tmp_path: Path) -> None:
    one = made_run(tmp_path, "one", wait_s=100, degradation=1.2, noise=0.5)
    two = made_run(tmp_path, "two", wait_s=100, degradation=1.2, noise=0.5, seed=9, multiplicity=2)
    (finding,) = verdict_of([one, two]).findings
    assert finding.answer == "unclear"
    assert "no clear difference" in finding.sentences[0]
    assert verdict_of([one, two]).answer.startswith("Two jobs a core: waits not clearly different [")


def test_only_what_an_interval_supports_has_the_colour_of_a_gain_or_a_loss(tmp_path: Path) -> None:
    one = made_run(tmp_path, "one", wait_s=100, degradation=1.2, noise=0.5)
    two = made_run(tmp_path, "two", wait_s=100, degradation=1.2, noise=0.5, seed=9, multiplicity=2)
    three = made_run(tmp_path, "three", wait_s=9, degradation=1.2, noise=0.5, seed=9, multiplicity=2)
    noise, clear = verdict_of([one, two]), verdict_of([one, three])
    assert all(found.change.mean for found in noise.findings[0].differences.values())
    assert [paragraph.tone for paragraph in answered(noise)] == ["unclear"]
    assert {paragraph.tone for paragraph in paragraphs(noise)} == {"unclear", "muted"}
    assert set(tones(noise).values()) == {""}
    assert [paragraph.tone for paragraph in answered(clear)] == ["good"]
    assert tones(clear)["wait, mean [s]"] == "good"


def tones(verdict: Verdict) -> dict[str, str]:
    """Return the tone of each change in the page's table of differences."""
    section = differences_section(verdict)
    assert section is not None
    (block,) = section.blocks
    assert block.grid is not None
    return {str(row[0]): cell.tone for row in block.grid.rows for cell in row if isinstance(cell, TableCell)}


def test_a_certain_change_of_nothing_much_is_none(tmp_path: Path) -> None:
    one = made_run(tmp_path, "one", wait_s=100, degradation=1.2, noise=0)
    two = made_run(tmp_path, "two", wait_s=100.1, degradation=1.2, noise=0, multiplicity=2)
    (finding,) = verdict_of([one, two]).findings
    assert "no clear difference" in finding.sentences[0]
    assert finding.answer == "unclear"


def test_a_shorter_slowdown_is_an_answer_where_jobs_are_done_no_sooner(tmp_path: Path) -> None:
    """Short jobs wait less and long ones more, as under a policy that lets the short ones pass."""
    one = made_run(tmp_path, "one", wait_s=100, degradation=1, noise=0.01)
    two = made_run(tmp_path, "two", wait_s=100, degradation=1, noise=0.01, seed=3)
    is_short = pl.col("trace_job") % 2 == 0
    one, two = (_with_short_jobs(run, is_short, moved) for run, moved in ((one, 0.0), (two, 90.0)))
    other = msgspec.structs.replace(two.info, queues="mq", interactive_nodes=1)
    verdict = verdict_of([one, dataclasses.replace(two, info=other)])
    assert verdict.findings[0].answer == "better"
    assert "mean bounded slowdown 62% [" in verdict.answer
    assert verdict.answer.endswith("lower: better for this workload.")
    assert "[-" in verdict.answer


def _with_short_jobs(run: Run, is_short: pl.Expr, moved_s: float) -> Run:
    """Return the run with every second job 10 s long; these wait so much less, and the others more."""
    wait = pl.col("start_s") - pl.col("submit_s") + pl.when(is_short).then(-moved_s).otherwise(moved_s)
    length = pl.when(is_short).then(10.0).otherwise(100.0)
    jobs = run.jobs.with_columns(start_s=pl.col("submit_s") + wait, dedicated_s=length)
    return dataclasses.replace(run, jobs=jobs.with_columns(end_s=pl.col("start_s") + length))


def test_measures_that_disagree_are_called_mixed(tmp_path: Path) -> None:
    one = made_run(tmp_path, "one", wait_s=100, degradation=1, noise=0.01)
    two = made_run(tmp_path, "two", wait_s=120, degradation=1, noise=0.01, multiplicity=2)
    is_short = pl.col("trace_job") % 2 == 0
    one, two = (_with_short_jobs(run, is_short, moved) for run, moved in ((one, 0.0), (two, 90.0)))
    verdict = verdict_of([one, two])
    assert verdict.findings[0].answer == "mixed"
    assert verdict.answer.endswith("sharing helps by one measure and harms by another.")


def test_few_jobs_are_not_enough(tmp_path: Path) -> None:
    one = made_run(tmp_path, "one", wait_s=1000, degradation=1, jobs=9)
    two = made_run(tmp_path, "two", wait_s=1, degradation=1, jobs=9, multiplicity=2)
    verdict = verdict_of([one, two])
    assert answers(verdict) == [("setting", "two", "unclear")]
    assert "too few jobs to tell" in verdict.findings[0].sentences[0]
    assert verdict.evidence[0].startswith("Evidence: not enough. 9 jobs")
    assert verdict.answer.endswith("sooner: too few jobs to tell whether sharing helps.")


def test_evidence_that_differs_says_what_it_is_for(tmp_path: Path) -> None:
    one = made_run(tmp_path, "one", wait_s=1000, degradation=1, jobs=9)
    two = made_run(tmp_path, "two", wait_s=1, degradation=1, jobs=9, multiplicity=2)
    few = made_run(tmp_path, "few", wait_s=1, degradation=1, jobs=1, multiplicity=3)
    evidence = verdict_of([one, two, few]).evidence
    assert len(evidence) == 2
    assert evidence[0].startswith("Evidence for two against one: not enough. 9 jobs in one run each give")
    assert evidence[1].startswith("Evidence for few against one: not enough. 1 job in one run each gives")


def test_a_trace_that_repeats_itself_has_an_interval_over_its_repetitions(tmp_path: Path) -> None:
    one = made_run(tmp_path, "one", wait_s=100, degradation=1, jobs=12, block_jobs=4)
    two = made_run(tmp_path, "two", wait_s=10, degradation=1, jobs=12, block_jobs=4, multiplicity=2)
    verdict = verdict_of([one, two])
    (finding,) = verdict.findings
    assert (finding.evidence, finding.answer) == ("blocks", "better")
    assert "over the times that the same few were repeated" in verdict.evidence[0]


def test_a_repetition_that_is_not_whole_or_of_another_length_counts_as_jobs(tmp_path: Path) -> None:
    one = made_run(tmp_path, "one", wait_s=100, degradation=1, jobs=11, block_jobs=4)
    two = made_run(tmp_path, "two", wait_s=10, degradation=1, jobs=11, block_jobs=4, multiplicity=2)
    assert verdict_of([one, two]).findings[0].evidence == "too few jobs"
    other = made_run(tmp_path, "other", wait_s=10, degradation=1, jobs=12, block_jobs=3, multiplicity=2)
    whole = made_run(tmp_path, "whole", wait_s=100, degradation=1, jobs=12, block_jobs=4)
    assert verdict_of([whole, other]).findings[0].evidence == "too few jobs"


@pytest.mark.slow
def test_repetitions_are_one_setting_and_its_unit_is_a_run(tmp_path: Path) -> None:
    one = [made_run(tmp_path, f"one{n}", wait_s=100, degradation=1, seed=n, jobs=8) for n in range(3)]
    two = [
        made_run(tmp_path, f"two{n}", wait_s=50, degradation=1, seed=9 + n, jobs=8, multiplicity=2)
        for n in range(4)
    ]
    verdict = verdict_of([*one, *two])
    (finding,) = verdict.findings
    assert (finding.runs, finding.evidence, finding.answer) == ((3, 4), "repeats", "better")
    assert verdict.evidence == ("Evidence: 3 and 4 runs of 8 jobs; 95% intervals over runs.",)


def test_a_simulation_of_a_real_run_has_errors_and_no_gains(tmp_path: Path) -> None:
    real = made_run(tmp_path, "real", wait_s=100, degradation=1)
    simulated = made_run(tmp_path, "sim", wait_s=90, degradation=1, kind="simulated")
    shared = made_run(tmp_path, "shared", wait_s=10, degradation=1, multiplicity=2)
    found = compared([real, simulated, shared])
    assert [two[1].info.label for two in found.forecasts] == ["sim"]
    assert [one.label for one in found.errors] == ["sim"]
    assert [two[1].info.label for two in found.settings] == ["shared"]
    assert [one.other for one in found.verdict.findings] == ["shared"]


def test_a_job_that_failed_somewhere_counts_nowhere(tmp_path: Path) -> None:
    one = made_run(tmp_path, "one", wait_s=100, degradation=1, jobs=40)
    two = made_run(tmp_path, "two", wait_s=100, degradation=1, jobs=40, multiplicity=2)
    failed = pl.when(pl.col("trace_job") <= 10).then(pl.lit("FAILED")).otherwise(pl.col("state"))
    broken = Run(two.path, two.info, two.jobs.with_columns(state=failed), None, None, complete=True)
    assert verdict_of([one, broken]).findings[0].jobs == 30


@pytest.mark.slow
def test_winners_and_losers_are_named(tmp_path: Path) -> None:
    one = load_run(example_run(tmp_path / "alone", "alone", jobs=30))
    two = load_run(example_run(tmp_path / "gang", "gang", jobs=30))
    table = gains(one, two)
    assert table["gain_s"].is_sorted(descending=True)
    rows = gain_rows(one, two, 4)
    assert [row[5].split()[-1] for row in rows] == sorted((row[5].split()[-1] for row in rows), reverse=True)
    assert rows[0][0] == str(table["trace_job"][0])


def test_one_run_or_no_common_job_is_refused(tmp_path: Path) -> None:
    one = made_run(tmp_path, "one", wait_s=1, degradation=1, jobs=2)
    with pytest.raises(UsageError, match="at least two"):
        compared([one])


def test_the_verdict_is_json(tmp_path: Path) -> None:
    one = made_run(tmp_path, "one", wait_s=100, degradation=1)
    two = made_run(tmp_path, "two", wait_s=50, degradation=1, multiplicity=2)
    document = msgspec.json.decode(msgspec.json.encode(verdict_of([one, two])))
    assert document["findings"][0]["differences"]["wait_s"]["change"]["high"] < 0


@examples(50)
@given(st.integers(0, 10_000), st.integers(5, 20))
def test_intervals_of_batches_hold_the_mean_and_are_symmetric(seed: int, batches: int) -> None:
    values = pl.Series(np.random.default_rng(seed).exponential(10, 200))
    found = batch_means(values, batches)
    assert found.low is not None
    assert found.high is not None
    assert math.isclose(found.mean - found.low, found.high - found.mean)
    assert math.isclose(found.mean, float(np.mean(values.to_numpy())))


def test_batches_cover_what_they_promise() -> None:
    """Of 400 intervals for independent values about 95 in a hundred hold the true mean."""
    rng = np.random.default_rng(5)
    held = 0
    for _ in range(400):
        found = batch_means(pl.Series(rng.normal(3, 1, 100)), 20)
        held += found.low is not None and found.high is not None and found.low <= 3 <= found.high
    assert 0.92 <= held / 400 <= 0.98


def test_welch_as_in_a_textbook() -> None:
    """Means 21 and 24, squared errors 1/3 and 4/3, two degrees of freedom: t is 4.3027."""
    found = welch([20.0, 21.0, 22.0], [22.0, 24.0, 26.0])
    assert found.mean == 3
    freedom = (1 / 3 + 4 / 3) ** 2 / ((1 / 3) ** 2 / 2 + (4 / 3) ** 2 / 2)
    assert math.floor(freedom) == 2
    half = 4.302653 * math.sqrt(5 / 3)
    assert found.high == pytest.approx(3 + half, abs=1e-5)
