"""What a sweep's file may say, and which points come of it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.claims import estimate
from foundation.errors import InputError, OsubError, UsageError
from osub.sweep.points import point_of
from osub.sweep.run import SweepStore
from osub.sweep.spec import Parameters, Spec, read_spec
from osub.sweep.tell import answers, pareto, scenarios
from tests.fixtures.tier import examples

BASE = '[base]\ntrace = "log.swf"\nsystem = "N2C2"\n'


def spec_of(tmp_path: Path, text: str) -> Spec:
    (path := tmp_path / "sweep.toml").write_text(text)
    return read_spec(path)


def test_grid_lists_and_single_points_are_put_together(tmp_path: Path) -> None:
    spec = spec_of(
        tmp_path,
        BASE
        + '[grid]\nmultiplicity = [1, 2]\npolicy = ["easy", "fcfs"]\n'
        + "[[zip]]\noverhead = [1.0, 1.2]\nseed = [5, 6]\n"
        + "[[point]]\nmultiplicity = 4\n[base.set]\nwindow = 3\n",
    )
    points = spec.combinations()
    assert len(points) == 2 * 2 * 2 + 1
    assert {(one.get("overhead"), one.get("seed")) for one in points} == {(1.0, 5), (1.2, 6), (None, None)}
    assert all(one["trace"] == str(tmp_path / "log.swf") for one in points)
    assert all(one["set.window"] == 3 for one in points)
    assert spec.varied() == ["multiplicity", "policy", "overhead", "seed"]


def test_a_point_that_comes_twice_is_taken_once(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, BASE + "[grid]\nseed = [1, 1, 2]\n[[point]]\nseed = 2\n")
    assert [one["seed"] for one in spec.combinations()] == [1, 2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[base\n", "is no TOML"),
        ("\x00", "is no TOML"),
        ('[base]\nout = "x"\n', "nothing is called out under \\[base\\]"),
        (BASE + "[grid]\nmultiplicity = 2\n", "multiplicity under \\[grid\\] takes a list"),
        (BASE + "[grid]\nmultiplicity = []\n", "takes a list of values"),
        (BASE + "[grid]\nmultiplicity = [[1]]\n", "takes texts, numbers and true or false"),
        (BASE + "[grid]\noverhead = [nan]\n", "takes texts, numbers"),
        (BASE + "[[zip]]\nseed = [1]\noverhead = [1.0, 2.0]\n", "seed has 1, overhead has 2"),
        (BASE + "[zip]\nseed = [1]\n", "two brackets"),
        (BASE + "[girid]\nseed = [1]\n", "there is no table girid"),
        ("base = 3\n", "\\[base\\] is a table"),
    ],
)
def test_a_file_that_is_wrong_is_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(OsubError, match=message) as caught:
        spec_of(tmp_path, text)
    assert "\n" not in str(caught.value)


def test_what_no_point_can_be_made_of_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a point has no system"):
        spec_of(tmp_path, '[base]\ntrace = "a"\n[grid]\nseed = [1]\n').combinations()
    many = ", ".join(map(str, range(2000)))
    with pytest.raises(UsageError, match="more than 1,000,000"):
        spec_of(tmp_path, BASE + f"[grid]\nseed = [{many}]\nmtbf = [{many}]\n").combinations()
    with pytest.raises(InputError, match="cannot read the sweep"):
        read_spec(tmp_path / "none.toml")


def test_a_key_follows_contents_and_not_where_a_file_lies(tmp_path: Path) -> None:
    one, other = tmp_path / "one" / "log.swf", tmp_path / "other" / "log.swf"
    for path in (one, other):
        path.parent.mkdir()
        path.write_text("; a trace\n")
    parameters: Parameters = {"trace": str(one), "system": "N2C2", "multiplicity": 2}
    key = point_of(parameters).key
    assert point_of(parameters | {"trace": str(other)}).key == key
    assert point_of(dict(reversed(parameters.items()))).key == key
    assert point_of(parameters | {"multiplicity": 3}).key != key
    assert point_of(parameters | {"multiplicity": "2"}).key != key
    assert (
        point_of(parameters | {"policy": "easy", "seed": 1, "lenient": False, "kind": "simulate"}).key == key
    )
    assert point_of(parameters | {"seed": 2}).key != key
    replayed = parameters | {"kind": "replay"}
    assert point_of(replayed | {"seed": 1}).key != point_of(replayed).key
    other.write_text("; another\n")
    assert point_of(parameters | {"trace": str(other)}).key != key
    with pytest.raises(InputError, match="cannot read"):
        point_of(parameters | {"trace": str(tmp_path / "none.swf")})


def test_a_changed_policy_of_ones_own_is_another_point(tmp_path: Path) -> None:
    trace, mine = tmp_path / "log.swf", tmp_path / "mine.py"
    trace.write_text(";\n")
    mine.write_text("A = 1\n")
    parameters: Parameters = {"trace": str(trace), "system": "N2C2", "policy": f"{mine}:A"}
    key = point_of(parameters).key
    mine.write_text("A = 22\n")
    assert point_of(parameters).key != key


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(OsubError, match="is not a sweep's"):
        SweepStore(tmp_path)
    with pytest.raises(OsubError, match="cannot write in"):
        SweepStore(tmp_path / "mine.txt" / "below")


def test_a_damaged_result_is_as_good_as_none(tmp_path: Path) -> None:
    (trace := tmp_path / "log.swf").write_text(";\n")
    point = point_of({"trace": str(trace), "system": "N2C2"})
    store = SweepStore(tmp_path / "out")
    store.keep(point, {"wait_mean_s": 1.0})
    assert store.finished([point]) == {point.key: {"wait_mean_s": 1.0}}
    (path,) = (tmp_path / "out" / "points").iterdir()
    path.write_text(json.dumps({"wait_mean_s": 1.0})[:-4])
    assert store.finished([point]) == {}
    shutil.rmtree(tmp_path / "out" / "points")
    assert store.finished([point]) == {}


def test_a_result_that_cannot_be_read_is_reported_and_not_made_again(tmp_path: Path) -> None:
    (trace := tmp_path / "log.swf").write_text(";\n")
    point = point_of({"trace": str(trace), "system": "N2C2"})
    store = SweepStore(tmp_path / "out")
    store.keep(point, {"wait_mean_s": 1.0})
    (path,) = (tmp_path / "out" / "points").iterdir()
    path.unlink()
    path.mkdir()  # what cannot be read, for root too
    with pytest.raises(InputError, match="cannot read"):
        store.finished([point])


@examples(60)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=20))
def test_the_front_has_what_none_beats_in_both(pairs: list[tuple[int, int]]) -> None:
    table = pl.DataFrame(
        {
            "wait_mean_s": [float(wait) for wait, _ in pairs],
            "degradation_mean": [float(harm) for _, harm in pairs],
        },
        schema={"wait_mean_s": pl.Float64, "degradation_mean": pl.Float64},
    )
    front = set(pareto(table).rows())
    for wait, harm in pairs:
        beaten = any((w <= wait and h <= harm) and (w, h) != (wait, harm) for w, h in pairs)
        assert ((float(wait), float(harm)) in front) == (not beaten)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BASE + '[grid]\nmultiplicity = [1, "two"]\n', "multiplicity takes a whole number, not 'two'"),
        (BASE + "[grid]\nmultiplicity = [1, 2.0]\n", "multiplicity takes a whole number, not 2.0"),
        (BASE + "multiplicity = true\n", "multiplicity takes a whole number, not True"),
        (BASE + "interactive_share = 5\n", "interactive_share takes a text, not 5"),
        (BASE + 'kind = "replay"\nvirtual = 1\n', "virtual takes True or False, not 1"),
        ('[base]\ntrace = 3\nsystem = "N2C1"\n', "trace takes a text, not 3"),
        (BASE + "seed = 99999999999999999999\n", "seed takes numbers of 64 bits at most"),
        (BASE + "[grid]\nmultiplicty = [1]\n", "did you mean multiplicity\\?"),
        (BASE + "[grid]\nseed = [1]\n[[zip]]\n", "this one names none"),
    ],
)
def test_what_no_point_can_have_is_refused_before_anything_runs(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        spec_of(tmp_path, text)


def test_a_file_without_a_point_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no point to run"):
        spec_of(tmp_path, "").combinations()


@pytest.mark.slow
def test_a_grid_whose_size_has_no_name_is_refused(tmp_path: Path) -> None:
    several = "".join(f"set.o{number} = [1, 2, 3, 4, 5, 6, 7, 8, 9]\n" for number in range(5000))
    with pytest.raises(UsageError, match="so many points are more than 1,000,000"):
        spec_of(tmp_path, BASE + "[grid]\n" + several).combinations()


def test_equal_numbers_are_one_point_and_true_is_none(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, BASE + "[grid]\noverhead = [1, 1.0, 1.5]\n")
    assert [one["overhead"] for one in spec.combinations()] == [1.0, 1.5]
    spec = spec_of(tmp_path, BASE + '"set.x" = 1\n[[point]]\n"set.x" = true\n[[point]]\n"set.x" = 1\n')
    assert [one["set.x"] for one in spec.combinations()] == [True, 1]


def test_what_a_point_does_not_take_is_a_dash() -> None:
    table = pl.DataFrame({"gang": [None, "osub"], "wait_mean_s": [1.0, 0.5], "degradation_mean": [1.0, 2.0]})
    (only,) = scenarios(table, ["gang"])
    assert [row[0] for row in only.rows(9)[1]] == ["osub", "-"]


def swept(waits: Mapping[tuple[int, float], Sequence[float]]) -> pl.DataFrame:
    """Return a table of points: mean waits by M and C_o, one for each seed."""
    return pl.DataFrame(
        [
            {
                "multiplicity": jobs,
                "overhead": overhead,
                "seed": seed,
                "wait_mean_s": wait,
                "degradation_mean": overhead * jobs,
            }
            for (jobs, overhead), some in waits.items()
            for seed, wait in enumerate(some)
        ]
    )


VARIED = ["overhead", "multiplicity", "seed"]


def test_choices_are_ranked_under_each_overhead_and_never_across() -> None:
    waits = {
        (1, 1.0): (90.0, 110.0),
        (1, 1.4): (90.0, 110.0),
        (2, 1.0): (9.0, 11.0),
        (2, 1.4): (190.0, 210.0),
    }
    one, other = scenarios(swept(waits), VARIED)
    assert (one.name, other.name) == ("overhead 1.0", "overhead 1.4")
    assert one.choices == ("multiplicity",)
    assert [row[0] for row in one.rows(9)[1]] == ["2", "1"]
    assert [row[0] for row in other.rows(9)[1]] == ["1"]
    reported = answers([one, other])
    assert "depends on the scenario" in reported[0][0]
    assert reported[0][1] == "overhead 1.0: multiplicity 2; overhead 1.4: multiplicity 1."


def test_results_are_means_over_seeds_with_the_interval_of_student() -> None:
    (only,) = scenarios(swept({(2, 1.2): (8.0, 10.0, 12.0)}), VARIED)
    found = estimate([8.0, 10.0, 12.0])
    row = only.table.row(0, named=True)
    assert (row["wait_mean_s"], row["runs"]) == (10.0, 3)
    assert (row["wait_mean_s_low"], row["wait_mean_s_high"]) == pytest.approx((found.low, found.high))
    assert only.rows(9)[1][0][1:3] == ["10 [5.03, 15]", "2.4"]


@pytest.mark.parametrize(
    ("second", "unsure"), [((9.0, 19.0, 32.0), True), ((11.0, 21.0, 31.0), False), ((10.0,), False)]
)
def test_less_waiting_is_reported_as_unsure_unless_it_is_so_seed_by_seed(
    second: Sequence[float], unsure: bool
) -> None:
    (only,) = scenarios(swept({(2, 1.2): (8.0, 18.0, 28.0)[: len(second)], (1, 1.2): second}), VARIED)
    answer = only.answer()
    assert answer is not None
    assert ("not clearly less than multiplicity 1" in answer[1]) == unsure


def test_what_repeats_names_is_averaged_over_and_no_choice(tmp_path: Path) -> None:
    spec = spec_of(
        tmp_path,
        '[base]\nsystem = "N2C1"\n[grid]\nmultiplicity = [1, 2]\n[repeat]\ntrace = ["a", "b", "c"]\n',
    )
    assert (len(spec.combinations()), spec.varied()) == (6, ["multiplicity", "trace"])
    assert spec.averaged() == ("seed", "trial", "trace")
    for text, reported in (
        (BASE + "[repeat]\nmultiplicity = [1, 2]\n", "is what a user chooses"),
        (BASE + "[grid]\nseed = [1]\n[repeat]\nseed = [1, 2]\n", "name it once"),
    ):
        with pytest.raises(UsageError, match=reported):
            spec_of(tmp_path, text)
