"""The thesis's experiments on small traces: cleaning, cases, measures, the survey's choices, the command."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import msgspec
import numpy as np
import pytest

from analysis.claims import Claim, ClaimRow, not_comparable
from foundation.errors import InputError
from simulator.engine.run_rules import RunRules
from simulator.experiment_page import ExperimentTable, against, percent, write_page
from simulator.experiments.thesis_cases import CaseOutcome as Figures
from simulator.experiments.thesis_cases import (
    ThesisCase,
    ThesisStudy,
    cleaned,
    done_h,
    in_blocks,
    mq,
    mq_cases,
    outcome_of,
    sq,
    with_interactive_jobs,
    with_patterns,
)
from simulator.experiments.thesis_comparisons import (
    CHAPTER_5,
    CHAPTER_6,
    KIT,
    SurveyedQueue,
    fair_pair,
    prompt_pair,
)
from simulator.model.system import System
from simulator.setting_choices import setting_of
from simulator.simulation.one_simulation import simulate
from simulator.simulation.simulation_options import Cleaning
from simulator.simulation.trace_workload import make_workload
from simulator.simulation_spec import SimulationSpec
from tests.fixtures.cli import Cli
from workloads.swf import SwfColumns, load_columns


def line(number: int, submit: int, run: int, procs: int, queue: int, cpu: int = -1) -> str:
    head = f"{number} {submit} -1 {run} {procs} {cpu} -1 {procs} {max(run, 60)}"
    return f"{head} -1 1 {number % 5} 1 -1 {queue} -1 -1 -1"


ODD = [
    line(1, 0, 100, 4, 1), line(2, 1, -1, 4, 1, cpu=30), line(3, 2, -1, 4, 1), line(4, 3, 0, 4, 1),
    line(5, 4, 50, 13, 0), line(6, 5, 50, 2, 0), line(7, 6, 0, 1, 0) + " -1 -1 -1 0 0 1 0",
    line(8, 7, 40, 1, 0) + " -1 -1 -1 10 0 1 30",
]  # fmt: skip


def load(folder: Path, lines: list[str]) -> SwfColumns:
    (path := folder / "trace.swf").write_text("\n".join(lines) + "\n")
    return load_columns(path)


@pytest.fixture
def odd(tmp_path: Path) -> SwfColumns:
    return load(tmp_path, ODD)


def busy(folder: Path, jobs: int) -> Path:
    """Write a log of a machine that is full all the time; every eighth job is interactive."""
    rng = np.random.default_rng(5)
    lines = []
    for number in range(1, jobs + 1):
        queue = 0 if number % 8 == 0 else 1
        procs = int(rng.integers(1, 9)) if queue == 0 else int(rng.integers(1, 500))
        lines.append(line(number, number * 40, int(rng.integers(1, 4000)), procs, queue))
    (path := folder / "busy.swf").write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def busy_trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return busy(tmp_path_factory.mktemp("busy"), 400)


@pytest.fixture(scope="module")
def short_trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """So many jobs as are simulated in all cases of a chapter sooner than a kind of run is compiled."""
    return busy(tmp_path_factory.mktemp("short"), 64)


class TestCleaning:
    def test_run_times_are_taken_or_made_as_the_thesis_does(self, odd: SwfColumns) -> None:
        frame = cleaned(odd, 12).frame
        assert dict(zip(frame["job_number"], frame["run_s"], strict=True)) == {
            1: 100, 2: 30, 4: 1, 6: 50, 7: 1, 8: 40,
        }  # fmt: skip

    def test_interactive_jobs_wider_than_a_node_may_stay(self, odd: SwfColumns) -> None:
        assert 5 in cleaned(odd, None).frame["job_number"].to_list()

    def test_a_pattern_of_no_length_is_dropped_and_others_move_with_their_job(self, odd: SwfColumns) -> None:
        kept = cleaned(odd, 12)
        (row,) = kept.extensions
        assert kept.frame["job_number"][row] == 8

    def test_a_trace_without_run_times_is_reported(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="no job with a run time"):
            cleaned(load(tmp_path, [line(1, 0, -1, 1, 1)]), 12)


class TestDataSets:
    def test_larger_sets_contain_smaller_ones(self, busy_trace: Path) -> None:
        trace = cleaned(load_columns(busy_trace), 12)
        few, many = (
            set(with_interactive_jobs(trace, wanted, seed=1).frame.filter(queue=0)["job_number"].to_list())
            for wanted in (51, 54)
        )
        assert (len(few), len(many)) == (51, 54)
        assert few < many

    def test_only_small_short_jobs_are_made_interactive(self, busy_trace: Path) -> None:
        trace = cleaned(load_columns(busy_trace), 12)
        frame = with_interactive_jobs(trace, 54, seed=1).frame.filter(queue=0)
        assert (frame["requested_procs"] <= 12).all()

    def test_more_than_there_are_is_reported(self, busy_trace: Path) -> None:
        with pytest.raises(InputError, match="to make interactive, not"):
            with_interactive_jobs(load_columns(busy_trace), 390, seed=1)

    def test_periods_that_alternate_are_put_into_the_order_of_table_6_1(self, tmp_path: Path) -> None:
        trace = load(tmp_path, [line(1, 0, 63, 1, 0) + " -1 -1 -1 1 2 3 10 20 5 15 10"])
        assert in_blocks(trace).extensions[0][3:] == (1, 2, 3, 10, 5, 10, 20, 15)

    def test_patterns_keep_the_run_times(self, busy_trace: Path) -> None:
        trace = with_patterns(cleaned(load_columns(busy_trace), 12), seed=3)
        study = ThesisStudy(trace, CHAPTER_6.system, rules("1.2"), patterns=True)
        workload = study.workload(sq(1).queues(CHAPTER_6.system))
        assert workload.periods.patterned
        assert (workload.run_us == workload.periods.totals_us).all()


def rules(overhead: str) -> RunRules:
    return setting_of(
        SimulationSpec(system="N150C12", policy="easy-elsewhere", overhead=overhead, placement="thesis")
    ).rules


def test_shares_are_rounded_down_and_the_nearest_number_is_shown_where_it_differs() -> None:
    cases = mq_cases(System(150, 12), ("10%", "7%", "0.1%"), 4)
    assert [(case.label, case.interactive_nodes) for case in cases] == [
        ("MQ, R=10%", 15),
        ("MQ, R=7%", 10),
        ("MQ, R=0.1%", 1),
        ("MQ, R=7% (11 nodes)", 11),
    ]


def test_pools_that_cases_share_are_simulated_once(busy_trace: Path) -> None:
    trace = cleaned(load_columns(busy_trace), 12)
    study = ThesisStudy(trace, CHAPTER_5.system, rules("1.0"), patterns=False)
    first = study.run(mq(CHAPTER_5.system, "5%", 1))
    assert study.run(mq(CHAPTER_5.system, "5%", 2)).interactive_waited == first.interactive_waited
    assert len(study._pools) == 3


def test_a_larger_pool_takes_no_jobs_that_were_cut_for_a_smaller_one(tmp_path: Path) -> None:
    """A batch job of 60 nodes fits where R is 5%, not where it is 70%, whichever is simulated first."""
    lines = [line(n, 10 * n, 500, 24 if n % 3 == 0 else 720, 0 if n % 3 == 0 else 1) for n in range(1, 13)]
    trace = cleaned(load(tmp_path, lines), None)
    cases = [mq(CHAPTER_5.system, share, 1) for share in ("70%", "5%", "70%", "6%")]

    def outcomes(*studied: ThesisCase) -> list[Figures]:
        study = ThesisStudy(trace, CHAPTER_5.system, rules("1.0"), patterns=False)
        return [msgspec.structs.replace(study.run(case), engine_cpu_s=0.0) for case in studied]

    together = outcomes(*cases)
    assert together == [outcomes(case)[0] for case in cases]
    assert together[0] != msgspec.structs.replace(together[1], label=together[0].label)


def test_a_workload_that_fits_everywhere_is_made_once(tmp_path: Path) -> None:
    lines = [line(n, 10 * n, 500, 12, 0 if n % 3 == 0 else 1) for n in range(1, 13)]
    study = ThesisStudy(cleaned(load(tmp_path, lines), 12), CHAPTER_5.system, rules("1.0"), patterns=False)
    made = {id(study.workload(case.queues(CHAPTER_5.system))) for case in [sq(1), *CHAPTER_5.cases()]}
    assert len(made) == 1


def test_completion_is_weighed() -> None:
    end_us = np.array([3, 1, 2]) * 3_600_000_000
    assert done_h(end_us, np.array([1.0, 18.0, 1.0])) == (1, 2, 3)


def test_differences_beyond_a_fifth_are_marked() -> None:
    assert [against(*pair) for pair in ((1.0, 1.0), (1.19, 1.0), (0.5, 1.0), (0.1, 0.0), (1.0, None))] == [
        "=", "+19%", "-50% *", "+0.1 *", "-",
    ]  # fmt: skip
    assert percent(0.0011) == "0.11%"


class TestSurvey:
    INTERACTIVE: ClassVar = [
        SurveyedQueue("1%", 4, 0.1, 90.0),
        SurveyedQueue("1%", 8, 0.0, 3.0),
        SurveyedQueue("2%", 4, 0.0, 2.0),
        SurveyedQueue("3%", 4, 0.0, 1.5),
    ]
    BATCH: ClassVar = [
        SurveyedQueue("1%", 4, 0.0, 2.5),
        SurveyedQueue("2%", 4, 0.01, 7.0),
        SurveyedQueue("2%", 5, 0.0, 6.0),
        SurveyedQueue("3%", 5, 0.0, 4.0),
    ]

    def test_no_job_waits_at_the_least_share_and_then_the_least_multiplicity(self) -> None:
        inner, outer = prompt_pair(self.INTERACTIVE, self.BATCH)
        assert (inner.share, inner.most, outer.most) == ("2%", 4, 5)

    def test_the_fairest_is_sought_among_all(self) -> None:
        inner, outer = fair_pair(self.INTERACTIVE, self.BATCH)
        assert (inner.share, inner.most, outer.most) == ("1%", 8, 4)


def spoken(page: str) -> str:
    """Return the verdict of a page: what comes before its pictures, tables and notes."""
    return page[page.index('id="verdict"') : page.index('id="picture"')]


class TestCommand:
    @pytest.mark.slow
    def test_chapter_5_prints_its_tables_and_writes_a_page(
        self, short_trace: Path, tmp_path: Path, cli: Cli
    ) -> None:
        page = tmp_path / "page.html"
        out = cli("experiment", "thesis-5", short_trace, "--any-trace", "--html", page).out
        for name in ("Table 5.3(a)", "Table 5.4", "Table 5.5", "Figures 5.4(a)"):
            assert name in out
        text = page.read_text()
        assert all(f"Figure 5.{number}(a)" in text for number in (4, 5, 6, 7))
        answer = spoken(text)
        for words in ("with one job a core (SQ, M=1) ", "the largest S_OSub is ", "64 jobs, 8 interactive"):
            assert words in answer
        assert "cannot be compared here" in text

    @pytest.mark.parametrize("chapter", ["thesis-5", "thesis-6"])
    def test_another_trace_than_the_thesiss_is_refused(
        self, busy_trace: Path, chapter: str, cli: Cli
    ) -> None:
        said = cli.said("experiment", chapter, busy_trace, code=1)
        assert "is not the thesis's trace: 400 jobs that run, not 51,871" in said

    @pytest.mark.slow
    def test_the_kit_trace_adds_its_tables(self, tmp_path: Path, cli: Cli) -> None:
        trace = busy(tmp_path, 40)
        found = cli.json("experiment", "thesis-5", trace, "--any-trace", "--kit", trace, "--json")
        assert [table["name"] for table in found["tables"]][-3:-1] == ["Table 5.3(b)", "Table 5.6"]
        assert len(found["outcomes"]) == len(CHAPTER_5.cases()) + len(KIT.cases())
        assert found["outcomes"][-1]["interactive_jobs"] == 5

    @pytest.mark.slow
    def test_chapter_6_without_a_survey(self, short_trace: Path, tmp_path: Path, cli: Cli) -> None:
        page = tmp_path / "page.html"
        flags = ("--any-trace", "--survey", "none", "--html", page)
        assert "Table 6.2" in cli("experiment", "thesis-6", short_trace, *flags).out
        text = page.read_text()
        assert "Figure 6.6(c)" in text
        for words in ("with one job a core (SQ, M=1) ", "the largest S_OSub is ", "64 jobs, "):
            assert words in spoken(text)

    @pytest.mark.parametrize("words", ["7", "0", "one", "1-9", ""])
    def test_data_sets_that_there_are_not_are_reported(self, busy_trace: Path, words: str, cli: Cli) -> None:
        cli.said("experiment", "thesis-6", busy_trace, "--survey", words, code=2)

    def test_a_trace_with_too_few_jobs_for_a_data_set_is_reported_at_once(
        self, busy_trace: Path, cli: Cli
    ) -> None:
        cli.said("experiment", "thesis-6", busy_trace, "--any-trace", "--survey", "6", code=1)


def test_evidence_is_next_to_the_verdict_and_with_the_facts(tmp_path: Path) -> None:
    table = ExperimentTable(name="Table 1", title="Waits", columns=("", "thesis", "ours"), rows=(), notes=())
    facts = ["Three runs.", "Evidence: 2 of 3 replays are unfit to judge by."]
    write_page(tmp_path / "page.html", "A study", facts, [table], [])
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    verdict = page[page.index('id="verdict"') : page.index('id="how"')]
    assert "2 of 3 replays are unfit to judge by." in verdict
    assert page.count("2 of 3 replays are unfit") == 2


def test_what_came_of_a_study_is_said_before_its_claims(tmp_path: Path) -> None:
    claim = Claim(id="R1", where="Table 1", setting="any", quantity="wait", paper="1 s")
    facts = ["Whole day: no job waits.", "Evidence: 3 replays.", "How it was made."]
    row = ClaimRow.of(claim, not_comparable("other sizes"), "2 s")
    write_page(tmp_path / "page.html", "A study", facts, [], [], [row])
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    said = [page.index(text) for text in ("no job waits.", "3 replays.", "cannot be compared")]
    assert said == sorted(said)
    assert "How it was made." not in page[: page.index('id="claims"')]


LINES = """\
1 0 -1 3600 1 -1 -1 1 3600 -1 1 1 1 -1 1 -1 -1 -1
2 0 -1 36000 1 -1 -1 1 36000 -1 1 1 1 -1 0 -1 -1 -1 -1 -1 -1 17990 17990 1 20
"""


def test_idle_time_of_interactive_jobs_is_no_cpu_time(tmp_path: Path) -> None:
    (path := tmp_path / "two.swf").write_text(LINES)
    setting = setting_of(SimulationSpec(system="N1C2", overhead="1.0"))
    workload = make_workload(load_columns(path), setting.queues, Cleaning())
    result = simulate(workload, setting)
    outcome = outcome_of("two", workload, result.start_us, result.end_us, 0.0)
    # the batch job computes for an hour, the interactive one for 20 s of its ten
    assert (outcome.cpu_time_done_h, outcome.jobs_done_h) == ((1.0, 1.0, 10.0), (10.0, 10.0, 10.0))
