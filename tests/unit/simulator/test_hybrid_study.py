"""The study of the H claims: every claim has its row, and verdicts follow from the runs."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from analysis.claims import ClaimRow, ClaimVerdict
from simulator.experiments import hybrid_study, hybrid_survey
from simulator.experiments.claim_study import STUDIES
from simulator.experiments.hybrid_claims import claim_rows
from simulator.hybrid.drawn_jobs import MIXES
from workloads.swf import load_columns

SEEDS = 3


@pytest.fixture(scope="module")
def found() -> hybrid_survey.HybridSurvey:
    """Return a study of a few jobs on a small machine, in plain Python."""
    seen: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OSUB_JIT", "0")
        run = hybrid_survey.survey(
            hybrid_study.made_workload(120, 64, load=1.2), 64, SEEDS, hybrid_survey.QUICK, seen.append
        )
    assert len(seen) == hybrid_survey.steps_of(SEEDS, hybrid_survey.QUICK)
    return run


@pytest.mark.slow
def test_every_claim_has_a_row_in_order(found: hybrid_survey.HybridSurvey) -> None:
    rows = claim_rows(found)
    assert [row.id for row in rows] == [f"H{number}" for number in range(1, 31)]
    assert all(row.ours and row.paper and row.where for row in rows)


@pytest.mark.slow
def test_what_was_measured_on_another_trace_is_not_judged(found: hybrid_survey.HybridSurvey) -> None:
    rows = by_id(found)
    for name in ("H1", "H2", "H3", "H19"):
        assert rows[name].verdict is ClaimVerdict.NOT_COMPARABLE
        assert "another trace" in rows[name].note


def by_id(found: hybrid_survey.HybridSurvey) -> dict[str, ClaimRow]:
    return {row.id: row for row in claim_rows(found)}


def test_a_mechanism_that_preempts_more_malleable_jobs_turns_the_verdict(
    found: hybrid_survey.HybridSurvey,
) -> None:
    """H8 holds if N&PAA preempts most, and fails if another does so in every seed."""
    runs = {
        (name, mix): [replace(one, malleable_preempted=0.9 if name == "N&PAA" else 0.1) for one in of]
        for (name, mix), of in found.runs.items()
    }
    assert by_id(replace(found, runs=runs))["H8"].verdict is ClaimVerdict.HOLDS
    runs = {
        (name, mix): [replace(one, malleable_preempted=0.9 if name == "CUA&PAA" else 0.1) for one in of]
        for (name, mix), of in found.runs.items()
    }
    turned = by_id(replace(found, runs=runs))["H8"]
    assert turned.verdict is ClaimVerdict.FAILS
    assert "CUA&PAA" in turned.note


def test_useful_node_time_is_the_trace_s_whatever_happens(found: hybrid_survey.HybridSurvey) -> None:
    """What the utilisation of a run can differ by is the last end alone."""
    for of in found.runs.values():
        assert all(0 < one.utilisation <= 1 for one in of)
        assert all(0 <= one.wasted < 1 for one in of)
        assert all(one.at_once <= one.instant for one in of)


def test_sharing_preempts_no_job(found: hybrid_survey.HybridSurvey) -> None:
    for of in found.shared.values():
        assert all(one.malleable_preempted == one.rigid_preempted == one.wasted == 0 for one in of)


def test_what_was_learnt_follows_from_the_runs(found: hybrid_survey.HybridSurvey) -> None:
    every = {key: [replace(one, instant=0.75) for one in of] for key, of in found.runs.items()}
    base = [replace(one, instant=0.25) for one in found.base]
    starts = hybrid_study.learnt(replace(found, runs=every, base=base))[0]
    assert "75 to 75% start instantly" in starts
    assert "25% under FCFS/EASY" in starts


def test_tables_and_figures_cover_all_mechanisms(found: hybrid_survey.HybridSurvey) -> None:
    shown = {table.name: table for table in hybrid_study.tables(found)}
    assert {row[0] for row in shown["Mechanisms"].rows} >= set(hybrid_survey.MECHANISMS)
    assert shown["Notices"].columns[1:] == tuple(MIXES)
    assert all(len(row) == len(table.columns) for table in shown.values() for row in table.rows)
    assert all(figure.data for _, figure in hybrid_study.drawings(found))


def test_a_made_trace_loads_the_machine_as_wanted() -> None:
    jobs = hybrid_study.made_workload(4000, 512, load=0.7)
    span_us = int(jobs.submit_us.max() - jobs.submit_us.min())
    assert float((jobs.run_us * jobs.nodes).sum()) / 512 / span_us == pytest.approx(0.7, rel=1e-3)
    assert (np.diff(jobs.submit_us) >= 0).all()
    assert (jobs.requested_us >= jobs.run_us).all()


def test_a_trace_is_brought_to_the_load_of_the_paper() -> None:
    jobs = hybrid_study.at_load(hybrid_study.made_workload(2000, 512, load=0.5), 512)
    span_us = int(jobs.submit_us.max() - jobs.submit_us.min())
    assert float(jobs.run_us @ jobs.nodes) / 512 / span_us == pytest.approx(hybrid_study.LOAD, rel=1e-3)
    one = hybrid_study.made_workload(1, 512)
    assert hybrid_study.at_load(one, 512).submit_us.tolist() == one.submit_us.tolist()


def test_checkpoints_that_take_no_time_leave_jobs_their_run_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """On an empty machine a job takes its time in the trace, however often it writes them."""
    monkeypatch.setenv("OSUB_JIT", "0")
    jobs = hybrid_survey.drawn(hybrid_study.made_workload(40, 512, load=0.001), 512, 1, "W5")
    half = replace(hybrid_survey.MECHANISMS["N&PAA"], interval=Fraction(1, 2))
    free, timed = (
        hybrid_survey.measure(jobs, 512, replace(half, free_checkpoints=is_free), hybrid_survey.OVERHEAD)
        for is_free in (True, False)
    )
    assert free.turnaround == pytest.approx(float(jobs.run_us.mean()) / 3.6e9)
    assert timed.rigid > free.rigid


def test_the_study_takes_one_trace() -> None:
    assert STUDIES["hybrid"].most_traces == 1


@pytest.mark.parametrize(
    ("header", "nodes"),
    [
        ("; MaxNodes: 100\n; MaxProcs: 100\n", 100),
        ("; MaxNodes: 151\n; MaxProcs: 2004\n", 2004),
        ("; MaxNodes: 4360\n; MaxProcs: 4360\n", 4392),
        ("", 24),
    ],
)
def test_a_trace_is_simulated_on_its_own_machine(tmp_path: Path, header: str, nodes: int) -> None:
    path = tmp_path / "trace.swf"
    jobs = "".join(f"{n} {n} -1 100 {n} -1 -1 {n} 200 -1 1 1 1 -1 1 -1 -1 -1\n" for n in (3, 24, 5))
    path.write_text(header + jobs)
    assert hybrid_study.nodes_of(load_columns(path)) == nodes
