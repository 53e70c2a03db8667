"""The malleable strategies on schedules checked by hand, and what their family refuses."""

from __future__ import annotations

from pathlib import Path
from random import Random

import polars as pl
import pytest

from foundation.errors import UsageError
from simulator.model.job_sizes import ASKED, amdahl, downey, from_table, linear
from simulator.policies.malleable_family import STRATEGIES
from tests.fixtures.cli import Cli
from tests.fixtures.swf_jobs import write_jobs

Job = tuple[int, int, int, int]  # number, submit, run, nodes
Held = list[tuple[float, float, int]]  # from, to, nodes

HEADER = "trace_job,min_nodes,preferred_nodes,max_nodes,parallel"


def simulate(
    cli: Cli, folder: Path, jobs: list[Job], sizes: list[str], strategy: str, *settings: str
) -> dict[int, Held]:
    """Simulate jobs on N8C1, some with a linear speed-up; returns what each held."""
    trace, reported, out = write_jobs(folder / "trace.swf", jobs), folder / "sizes.csv", folder / strategy
    reported.write_text("\n".join([HEADER, *(f"{line},1" for line in sizes), ""]))
    words = [word for setting in (f"sizes={reported}", *settings) for word in ("--set", setting)]
    words += ["--system", "N8C1", "--policy", f"malleable-{strategy}", "--out", str(out), "--check"]
    cli("simulate", trace, *words)
    rows = pl.read_parquet(out / "jobs.parquet").select(
        "trace_job", "start_s", "end_s", nodes=pl.col("placement").list.len()
    )
    found = {job: [(start, end, nodes)] for job, start, end, nodes in rows.iter_rows()}
    if (out / "allocations.parquet").exists():
        held = pl.read_parquet(out / "allocations.parquet").sort("job", "from_s")
        for (job,), own in held.group_by("job", maintain_order=True):
            found[int(str(job))] = own.select("from_s", "to_s", pl.col("placement").list.len()).rows()
    return found


SOFT = [(1, 0, 80, 4)]
FOUR = (2, 10, 20, 4)
SIX = (2, 10, 20, 6)


@pytest.mark.parametrize("strategy", ["min", "pref", "avg", "keep-pref"])
def test_a_job_takes_what_idles_and_gives_what_others_need(tmp_path: Path, cli: Cli, strategy: str) -> None:
    found = simulate(cli, tmp_path, [*SOFT, FOUR], ["1,2,4,8"], strategy)
    assert found == {1: [(0, 10, 8), (10, 30, 4), (30, 50, 8)], 2: [(10, 30, 4)]}


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("min", {1: [(0, 10, 8), (10, 30, 2), (30, 55, 8)], 2: [(10, 30, 6)]}),
        ("avg", {1: [(0, 10, 8), (10, 30, 2), (30, 55, 8)], 2: [(10, 30, 6)]}),
        ("pref", {1: [(0, 10, 8), (10, 30, 2), (30, 55, 8)], 2: [(10, 30, 6)]}),
        ("keep-pref", {1: [(0, 40, 8)], 2: [(40, 60, 6)]}),
    ],
)
def test_only_keep_pref_never_goes_below_the_preferred_size(
    tmp_path: Path, cli: Cli, strategy: str, expected: dict[int, Held]
) -> None:
    assert simulate(cli, tmp_path, [*SOFT, SIX], ["1,2,4,8"], strategy) == expected


def test_pref_starts_smaller_before_others_go_below_what_they_prefer(tmp_path: Path, cli: Cli) -> None:
    jobs = [(1, 0, 80, 6), (2, 10, 20, 4)]
    found = simulate(cli, tmp_path, jobs, ["1,1,6,8", "2,2,4,4"], "pref")
    assert [nodes for *_, nodes in found[1]][:2] == [8, 6]
    assert found[2][0][2] == 2


def sizes_from(held: Held, second: float) -> int:
    return next(nodes for since, until, nodes in held if since <= second < until)


CROWDED = [(1, 0, 10, 6), (2, 0, 100, 3), (3, 0, 100, 2)]


@pytest.mark.parametrize(
    ("strategy", "expected"), [("min", (7, 1)), ("avg", (4, 4)), ("pref", (6, 2)), ("keep-pref", (6, 2))]
)
def test_who_gets_the_nodes_of_a_job_that_ended(
    tmp_path: Path, cli: Cli, strategy: str, expected: tuple[int, int]
) -> None:
    """Of two jobs: one gets all, both alike, or both what they prefer before one has more."""
    found = simulate(cli, tmp_path, CROWDED, ["2,1,3,8", "3,1,2,8"], strategy)
    assert (sizes_from(found[2], 10), sizes_from(found[3], 10)) == expected


def test_of_equals_the_first_takes_and_the_last_gives(tmp_path: Path, cli: Cli) -> None:
    jobs = [(1, 0, 60, 2), (2, 0, 60, 2), (3, 0, 60, 2), (4, 10, 50, 1), (5, 30, 30, 2)]
    sizes = ["1,1,2,3", "2,1,2,3", "3,1,2,2"]
    found = simulate(cli, tmp_path, jobs, sizes, "min")
    assert (found[2], found[1][:2]) == ([(0, 10, 3), (10, 55, 2)], [(0, 30, 3), (30, 55, 1)])


def test_with_a_tick_nothing_happens_in_between(tmp_path: Path, cli: Cli) -> None:
    found = simulate(cli, tmp_path, [*SOFT, FOUR], ["1,2,4,8"], "min", "tick=7")
    assert found == {1: [(0, 14, 8), (14, 35, 4), (35, 50.5, 8)], 2: [(14, 34, 4)]}


def test_a_resize_costs_what_it_is_said_to_cost_and_a_start_at_a_larger_size_nothing(
    tmp_path: Path, cli: Cli
) -> None:
    found = simulate(cli, tmp_path, [*SOFT, FOUR], ["1,2,4,8"], "min", "cost=5", "cost_a_node=0.25")
    assert found == {1: [(0, 10, 8), (10, 30, 4), (30, 59, 8)], 2: [(10, 30, 4)]}
    held = pl.read_parquet(tmp_path / "min" / "allocations.parquet")
    assert held.get_column("setup_s").to_list() == [0, 6, 6]
    (setup_s,) = pl.read_parquet(tmp_path / "min" / "jobs.parquet").filter(trace_job=1).get_column("setup_s")
    assert setup_s == 12


def test_by_the_letter_nodes_are_only_taken_while_one_idles(tmp_path: Path, cli: Cli) -> None:
    found = simulate(cli, tmp_path, [*SOFT, FOUR], ["1,2,4,8"], "min", "shrink_needs_idle=yes")
    assert found == {1: [(0, 40, 8)], 2: [(40, 60, 4)]}


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("system", ["N60C1", "N20C3"])
def test_without_malleable_jobs_every_job_starts_as_with_easy(
    tmp_path: Path, cli: Cli, strategy: str, system: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OSUB_JIT", "0")
    dice = Random(strategy)
    jobs = [(number, 7 * number, dice.randint(1, 900), dice.randint(1, 60)) for number in range(1, 80)]
    trace = write_jobs(tmp_path / "trace.swf", jobs)
    for policy, *more in (("easy",), (strategy, "--malleable-share", "0")):
        words = ["--system", system, "--policy", policy, "--out", str(tmp_path / policy), *more]
        cli("simulate", trace, *words)
    easy, soft = ((tmp_path / policy / "jobs.parquet").read_bytes() for policy in ("easy", strategy))
    assert easy == soft


BAD = [
    ("7,1,4,8,1", "sizes.csv:2: trace_job: there is no batch job 7 to simulate"),
    ("1,5,4,8,1", "sizes.csv:2: min_nodes: job 1: min_nodes 5 is over preferred_nodes 4"),
    ("1,5,6,3,1", "sizes.csv:2: min_nodes: job 1: min_nodes 5 is over max_nodes 3"),
    ("1,2,9,8,1", "sizes.csv:2: preferred_nodes: job 1: preferred_nodes 9 is over max_nodes 8"),
    ("1,0,4,8,1", "sizes.csv:2: min_nodes: job 1: 1 is over min_nodes 0"),
    ("1,5,5,8,1", "sizes.csv:2: min_nodes: job 1: min_nodes 5 is over its request 4"),
    ("1,1,2,3,1", "sizes.csv:2: max_nodes: job 1: its request 4 is over max_nodes 3"),
    ("1,1,4,9,1", "sizes.csv:2: max_nodes: job 1: max_nodes 9 is over the system's nodes 8"),
    ("1,1,4,8,1.5", "sizes.csv:2: parallel: '1.5' is no number from 0 to 1"),
    ("1,1,4,8,nan", "sizes.csv:2: parallel: 'nan' is no number from 0 to 1"),
    ("1,1,4,8,all", "sizes.csv:2: parallel: 'all' is no number"),
    ("1,1,4,-8,1", "sizes.csv:2: max_nodes: '-8' is no whole number"),
    ("1,1,4,٨,1", "sizes.csv:2: max_nodes: '\\u0668' is no whole number"),
    ("1,1,4", "sizes.csv:2: 3 cells for 5 columns"),
    ("1,1,4,8,1\n1,1,4,8,1", "sizes.csv:3: trace_job: job 1 is there twice"),
    ('1,1,4,"8', "sizes.csv:2: no CSV"),
]


@pytest.mark.parametrize(("lines", "message"), BAD)
def test_sizes_that_cannot_be_are_refused(lines: str, message: str, tmp_path: Path, cli: Cli) -> None:
    (sizes := tmp_path / "sizes.csv").write_text(f"{HEADER}\n{lines}\n")
    assert message in refused(tmp_path, cli, f"--set sizes={sizes}", 1)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--malleable-share 1.5", "--set malleable_share takes a number from 0 to 1, not '1.5'"),
        ("--malleable-share nan", "--set malleable_share takes a number from 0 to 1, not 'nan'"),
        ("--set efficiency_min=0.6", "min=0.6, efficiency_preferred=0.8 and efficiency_max=0.5 contra"),
        ("--set efficiency_max=0.9", "efficiency_preferred=0.8 and efficiency_max=0.9 contradict"),
        ("--set min_fraction=2", "--set min_fraction takes a number from 0.001 to 1, not '2'"),
        ("--set conversion=magic", "--set conversion takes amdahl, downey, fractions, not 'magic'"),
        ("--set tick=-1", "--set tick takes a number from 0 to 1e+06, not '-1'"),
        ("--multiplicity 2", "malleable jobs share no cores: their nodes take --multiplicity 1"),
        ("--policy easy --malleable-share 0.5", "policy easy has no option 'malleable_share'"),
    ],
)
def test_options_that_cannot_be_are_refused(words: str, message: str, tmp_path: Path, cli: Cli) -> None:
    assert message in refused(tmp_path, cli, words, 2)


def refused(folder: Path, cli: Cli, words: str, code: int) -> str:
    """Return what is said, if nothing is left behind."""
    trace, out = write_jobs(folder / "trace.swf", SOFT), folder / "run"
    always = f"simulate {trace} --system N8C1 --out {out} --policy malleable-min"
    said = cli.said(*always.split(), *words.split(), code=code)
    assert not list(folder.glob("*run*"))
    return said


def test_linear_rates_are_exact() -> None:
    assert linear(4) == (1, 2, 3, 4)


@pytest.mark.parametrize(
    ("parallel", "nodes", "efficiency"), [(0.95, 4, 0.870), (0.965, 8, 0.803), (0.995, 128, 0.612)]
)
def test_amdahl_gives_the_efficiencies_that_are_known(parallel: float, nodes: int, efficiency: float) -> None:
    assert amdahl(nodes, 1, parallel)[-1] / ASKED / nodes == pytest.approx(efficiency, abs=5e-4)
    assert ASKED / amdahl(nodes, nodes, parallel)[0] / nodes == pytest.approx(efficiency, rel=1e-2)


@pytest.mark.parametrize("sigma", [0.0, 0.5, 1.0, 2.0])
def test_downey_rises_from_one_to_the_average_parallelism(sigma: float) -> None:
    rates = downey(200, 1, 16, sigma)
    assert rates[0] == ASKED
    assert list(rates) == sorted(rates)
    assert rates[-1] == 16 * ASKED


def test_downey_without_variance_is_linear_up_to_its_average() -> None:
    assert downey(8, 1, 8, 0) == tuple(nodes * ASKED for nodes in range(1, 9))


def test_both_halves_of_downeys_model_meet_at_a_variance_of_one() -> None:
    below, above = downey(64, 1, 16, 1 - 1e-9), downey(64, 1, 16, 1)
    assert max(abs(a - b) for a, b in zip(below, above, strict=True)) <= 1


@pytest.mark.parametrize("table", [[], [0.0], [1, -1], [1, 1e9], [1, float("nan")], [1e9, 1]])
def test_tables_that_cannot_be_are_refused(table: list[float]) -> None:
    with pytest.raises(UsageError):
        from_table(table, 1)


def test_models_that_cannot_be_are_refused() -> None:
    with pytest.raises(UsageError):
        amdahl(4, 2, 1.5)
    with pytest.raises(UsageError):
        amdahl(4, 5, 0.5)
    with pytest.raises(UsageError):
        downey(4, 1, 0.5, 1)
