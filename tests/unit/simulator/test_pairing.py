"""Pairs of applications in the simulator: what jobs run, what they lose, and which are co-located."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import osub
from foundation.errors import InputError, UsageError
from predictor.dataset import PairKind, write_pairs
from predictor.model import write_model
from predictor.model.model_fit import fit_model
from simulator.pairing import applications_of, read_pair_table
from tests.fixtures.cli import Cli
from tests.fixtures.pairs_made import CPU, made_pairs
from tests.fixtures.tier import examples

NUMBERS = st.integers(-1, 3)
TABLE = "victim,opponent,e_v\na,a,0.5\na,b,0.8\nb,a,0.6\nb,b,0.5\n"


def trace(path: Path, jobs: list[tuple[int, int, int, int]]) -> Path:
    """Write jobs: submit, run, processors, user."""
    lines = [
        f"{number} {submit} -1 {run} {procs} -1 -1 {procs} {10 * run} -1 1 {user} 1 -1 1 -1 -1 -1"
        for number, (submit, run, procs, user) in enumerate(jobs, start=1)
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def table(tmp_path: Path) -> Path:
    (path := tmp_path / "pairs.csv").write_text(TABLE)
    return path


def said(path: Path, names: str) -> str:
    path.write_text(
        "job,application\n" + "".join(f"{job},{name}\n" for job, name in enumerate(names, start=1))
    )
    return str(path)


def test_two_on_a_core_lose_what_the_table_says(tmp_path: Path, table: Path) -> None:
    two = trace(tmp_path / "two.swf", [(0, 100, 1, 1), (0, 1000, 1, 2)])
    made = osub.simulate(
        two, "N1C1", multiplicity=2, sharing="pairwise", pairs=table, apps=said(tmp_path / "apps.csv", "ab")
    )
    ends = dict(zip(made.jobs["trace_job"], made.jobs["end_s"], strict=True))
    assert ends[1] == pytest.approx(100 / (1 - 0.8), rel=1e-3)  # a on b's core does a fifth of its work
    assert ends[2] == pytest.approx(500 + (1000 - 500 * 0.4), rel=1e-3)  # b loses 0.6 meanwhile
    assert made.jobs["app"].to_list() == ["a", "b"]


def test_harmless_neighbours_are_preferred_and_no_one_waits_for_them(tmp_path: Path, table: Path) -> None:
    apps = said(tmp_path / "apps.csv", "aba")
    three = trace(tmp_path / "three.swf", [(0, 100, 1, 1), (0, 100, 1, 2), (1, 10, 1, 3)])

    def places(placement: str) -> dict[int, str]:
        made = osub.simulate(
            three, "N2C1", multiplicity=2, sharing="pairwise", pairs=table, apps=apps, placement=placement
        )
        assert made.jobs["start_s"].to_list() == [0.0, 0.0, 1.0]
        return dict(
            zip(made.jobs["trace_job"], (held[0]["node"] for held in made.jobs["placement"]), strict=True)
        )

    paired = places("lln-paired")
    assert paired[3] == paired[1] != paired[2]  # a with a costs 1.0 together, with b 1.4


def starts(path: Path, table: Path, apps: str, **options: Any) -> dict[int, float]:
    """Return when each job starts, of one that has to share with who was before it."""
    made = osub.simulate(path, "N2C1", multiplicity=2, sharing="pairwise", pairs=table, apps=apps, **options)
    return dict(zip(made.jobs["trace_job"], made.jobs["start_s"], strict=True))


def test_who_would_be_harmed_waits_for_other_cores(tmp_path: Path, table: Path) -> None:
    # b on a's core costs a 0.8: the third waits until it shares with its like, or with no job.
    three = trace(tmp_path / "three.swf", [(0, 100, 1, 1), (0, 100, 1, 2), (1, 10, 1, 3)])
    apps = said(tmp_path / "apps.csv", "aab")
    assert starts(three, table, apps, placement="lln-paired")[3] == 1.0
    assert starts(three, table, apps, placement="lln-apart")[3] == 100.0
    assert starts(three, table, apps, placement="lln-apart", pairing_threshold=0.81)[3] == 1.0
    # Where a harmless job holds a core, that is where it goes.
    mixed = said(tmp_path / "mixed.csv", "abb")
    assert starts(three, table, mixed, placement="lln-apart")[3] == 1.0


@pytest.mark.parametrize(
    "options",
    [
        {"placement": "lln-apart"},
        {"placement": "lln-paired", "pairing_threshold": 0.6},
        {"placement": "lln-apart", "pairing_threshold": 1.5},
        {"placement": "lln-apart", "pairing_threshold": float("nan")},
    ],
)
def test_a_threshold_is_a_share_and_lln_aparts(options: dict[str, Any], tmp_path: Path, table: Path) -> None:
    one = trace(tmp_path / "one.swf", [(0, 10, 1, 1)])
    pairs: dict[str, Any] = {} if options == {"placement": "lln-apart"} else {"pairs": table}
    with pytest.raises(UsageError):
        osub.simulate(one, "N1C1", multiplicity=2, **pairs, **options)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["fcfs", "easy"])
def test_no_job_shares_with_one_that_it_harms_and_all_jobs_end(
    policy: str, tmp_path: Path, table: Path
) -> None:
    dice = np.random.default_rng(7)
    jobs = [
        (int(submit), int(run), int(procs), int(user))
        for submit, run, procs, user in zip(
            np.sort(dice.integers(0, 600, 80)),
            dice.integers(1, 60, 80),
            dice.choice([1, 1, 2, 4], 80),
            dice.integers(1, 7, 80),
            strict=True,
        )
    ]
    made = osub.simulate(
        trace(tmp_path / "log.swf", jobs), "N2C2", policy=policy, multiplicity=2,
        sharing="pairwise", pairs=table, placement="lln-apart",
    )  # fmt: skip
    assert made.jobs["state"].to_list() == ["COMPLETED"] * len(jobs)
    held = [
        (
            row["app"],
            row["start_s"],
            row["end_s"],
            {(p["node"], c) for p in row["placement"] for c in p["cores"]},
        )
        for row in made.jobs.iter_rows(named=True)
    ]
    met = {
        frozenset((app, other))
        for at, (app, start, end, cores) in enumerate(held)
        for other, begins, ends, others_cores in held[:at]
        if cores & others_cores and min(end, ends) - max(start, begins) > 1e-5
    }
    assert met == {frozenset("a"), frozenset("b")}  # who shares at all shares with its like


@pytest.mark.slow
def test_a_folder_of_pairs_and_a_model_are_tables_too(tmp_path: Path) -> None:
    pairs = made_pairs(8)
    write_pairs(tmp_path / "pairs", pairs)
    measured = read_pair_table(tmp_path / "pairs")
    assert measured.loss.shape == (8, 8)
    write_model(tmp_path / "model.json", fit_model(pairs, PairKind.TIMESLICE))
    modelled = read_pair_table(tmp_path / "model.json")
    assert modelled.applications == measured.applications
    assert np.abs(modelled.loss - measured.loss).max() < 0.1
    assert (measured.slowdown >= 1).all()
    assert (measured.slowdown <= 20).all()


@pytest.mark.slow
def test_losses_of_another_processor_are_used_with_a_warning(tmp_path: Path, table: Path, cli: Cli) -> None:
    pairs = made_pairs(8)
    write_pairs(tmp_path / "pairs", pairs)
    write_model(tmp_path / "model.json", fit_model(pairs, PairKind.TIMESLICE))
    log = trace(tmp_path / "one.swf", [(0, 10, 1, 1)])
    for number, file in enumerate((tmp_path / "pairs", tmp_path / "model.json", table)):
        words = ["simulate", str(log), "--system", "N1C1", "--multiplicity", "2", "--sharing", "pairwise"]
        printed = cli(*words, "--pairs", file, "--out", tmp_path / f"run{number}")
        assert (f"measured on {CPU}" in printed.err) == (file != table)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("victim,opponent\na,a\n", ":1: no column e_v"),
        ("victim,opponent,e_v\n", "has no pairs"),
        ("victim,opponent,e_v\na,a,nan\n", ":2: e_v"),
        ("victim,opponent,e_v\na,a,x\n", ":2: e_v"),
        ("victim,opponent,e_v\na,a\n", ":2: 2 cells"),
        ("victim,opponent,e_v\na,a,1\na,a,1\n", "is there twice"),
        ("victim,opponent,e_v\na,b,1\n", "a with a is missing"),
    ],
)
def test_tables_that_cannot_be_are_one_line(text: str, message: str, tmp_path: Path) -> None:
    (path := tmp_path / "pairs.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        read_pair_table(path)


def test_what_does_not_go_together_is_refused(tmp_path: Path, table: Path) -> None:
    one = trace(tmp_path / "one.swf", [(0, 10, 1, 1)])
    for options in (
        {"sharing": "pairwise"},
        {"placement": "lln-paired"},
        {"pairs": table},
        {"apps": "a"},
        {"pairs": table, "sharing": "pairwise", "node_noise": 0.1},
        {"pairs": table, "sharing": "pairwise", "apps": ","},
    ):
        with pytest.raises(UsageError):
            osub.simulate(one, "N1C1", multiplicity=2, **options)
    with pytest.raises(InputError, match="no pairs of application c"):
        osub.simulate(one, "N1C1", multiplicity=2, pairs=table, sharing="pairwise", apps="a,c")
    for text, reported in (
        ("job\n1\n", ":1: no column application"),
        ("job,application\nx,a\n", ":2: job"),
        ("job,application\n1,q\n", "no pairs of application q"),
        ("job,application\n1,a\n1,b\n", "is there twice"),
        ("job,application\n2,a\n", "which application job 1 runs"),
    ):
        (path := tmp_path / "apps.csv").write_text(text)
        with pytest.raises(InputError, match=reported):
            osub.simulate(one, "N1C1", multiplicity=2, pairs=table, sharing="pairwise", apps=str(path))


@pytest.mark.slow
@examples(60)
@given(
    st.lists(st.tuples(st.integers(-1, 3), st.integers(-1, 3)), min_size=1, max_size=30), st.integers(0, 99)
)
def test_jobs_of_one_user_and_executable_run_one_application(who: list[tuple[int, int]], seed: int) -> None:
    user, executable = (np.array(column, dtype=np.int64) for column in zip(*who, strict=True))
    number = np.arange(1, len(who) + 1)
    names, app = applications_of("x,y,z", ["x", "y", "z", "w"], number, user, executable, seed)
    assert names == ("x", "y", "z")
    assert ((app >= 0) & (app < 3)).all()
    again = applications_of("x,y,z", ["x", "y", "z", "w"], number, user, executable, seed)[1]
    assert again.tolist() == app.tolist()
    for one, first in zip(who, app.tolist(), strict=True):
        if one != (-1, -1):
            assert {int(app[place]) for place, other in enumerate(who) if other == one} == {first}
