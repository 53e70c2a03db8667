"""Models of pairs: they find what a formula put in, say when there is nothing, and refuse bad files."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.claims import estimate
from foundation.errors import InputError
from predictor import dataset
from predictor.model import Model, read_model, write_model
from predictor.model.judges_page import json_of, rows_of
from predictor.model.linear_models import (
    at_random,
    by_application,
    by_pair,
    cluster,
    cut_of,
    each_application,
    each_family,
)
from predictor.model.model_fit import fit_model
from predictor.model.model_judges import KindReport, curves_of, evaluate_kind, predict_unseen, rank_of
from predictor.model.pair_records import (
    MeasuredPair,
    Records,
    features_of,
    records_of,
    threshold_of,
    with_cpu,
)
from predictor.model.stepwise import fit_stepwise
from predictor.model.stored_model import UnseenVictims
from simulator.pairing import read_pair_table
from tests.fixtures.cli import Cli
from tests.fixtures.pairs_made import CPU, made_pairs
from tests.fixtures.tier import examples

pytestmark = pytest.mark.slow


def with_stressors(pairs: dataset.Pairs) -> dataset.Pairs:
    """Return these pairs with what each application and four stressors lose when they share.

    What a victim loses to itself tells its misses (``made_pairs``); a stressor's dial counts as misses do.
    """
    alone = {
        row["victim"]: row["e_v"] - 0.5
        for row in pairs.pairs.rows(named=True)
        if row["victim"] == row["opponent"]
    }
    row = pairs.pairs.row(0, named=True)
    made = []
    for dial, name in ((0.1, "cache.1"), (0.2, "cache.2"), (0.0, "branch.25"), (0.0, "branch.50")):
        for own, loss in alone.items():
            for victim, opponent, value in (
                (own, f"stress.{name}", 0.7 * loss + 0.3 * dial),
                (f"stress.{name}", own, 0.7 * dial + 0.3 * loss),
            ):
                losses = dict.fromkeys(("e_v", "e_v_low", "e_v_high"), 0.5 + value)
                made.append({**row, "victim": victim, "opponent": opponent, **losses})
    names = sorted({each["opponent"] for each in made} - alone.keys())
    apps = [
        {"application": name, "family": dataset.STRESSOR, "command": [name], "ranks": 1, "step": "a step"}
        for name in names
    ]
    return replace(
        pairs,
        pairs=pl.concat((pairs.pairs, dataset.PAIRS.frame(made))),
        applications=pl.concat((pairs.applications, dataset.APPLICATIONS.frame(apps))),
    )


def test_stressor_curves_report_losses_of_victims_never_seen_next_to_an_application() -> None:
    pairs = with_stressors(made_pairs(10))
    records = records_of(pairs, dataset.PairKind.TIMESLICE)
    curves = curves_of(pairs, dataset.PairKind.TIMESLICE)
    assert curves is not None
    assert curves.resources == ("branch", "cache")
    assert np.corrcoef(predict_unseen(records, curves), records.loss)[0, 1] > 0.95
    report = evaluate_kind(records, curves=curves)
    assert report.curves is not None
    assert report.curves.records == len(report.records)
    assert report.curves.rank_correlation > 0.9
    assert json_of(report)["curves"]["mean_error"] < 0.05
    assert any("stressor curves" in row[0] for row in rows_of(report))


def test_curves_of_noise_report_nothing_and_are_not_made_of_half_a_set() -> None:
    dice = np.random.default_rng(5)
    pairs = with_stressors(made_pairs())
    drawn = pl.Series("e_v", dice.normal(0.5, 0.1, pairs.pairs.height))
    noise = replace(pairs, pairs=pairs.pairs.with_columns(drawn, e_v_low=drawn, e_v_high=drawn))
    records = records_of(noise, dataset.PairKind.TIMESLICE)
    curves = curves_of(noise, dataset.PairKind.TIMESLICE)
    assert curves is not None
    assert abs(rank_of(predict_unseen(records, curves), records.loss)) < 0.3
    # An application that lacks one stressor has no curves; one that lacks all neither; the rest keep theirs.
    part = replace(
        pairs,
        pairs=pairs.pairs.filter(~((pl.col("victim") == "app0") & (pl.col("opponent") == "stress.cache.1"))),
    )
    fewer = curves_of(part, dataset.PairKind.TIMESLICE)
    assert fewer is not None
    assert "app0" not in fewer.sensitivity
    records = records_of(part, dataset.PairKind.TIMESLICE)
    names = records.features.applications
    unknown = np.isnan(predict_unseen(records, fewer))
    assert {names[place] for place in records.victim[unknown]} == {"app0"}
    assert curves_of(made_pairs(), dataset.PairKind.TIMESLICE) is None


@pytest.fixture(scope="module")
def pairs() -> dataset.Pairs:
    return made_pairs()


@pytest.fixture(scope="module")
def records(pairs: dataset.Pairs) -> Records:
    return records_of(pairs, dataset.PairKind.TIMESLICE)


@pytest.fixture(scope="module")
def report(records: Records) -> KindReport:
    return evaluate_kind(records)


@pytest.fixture(scope="module")
def model(pairs: dataset.Pairs) -> Model:
    return fit_model(pairs, dataset.PairKind.TIMESLICE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pairs") / "pairs"
    dataset.write_pairs(path, made_pairs(8))
    return path


def test_counters_that_are_the_same_for_all_are_left_out(records: Records) -> None:
    assert records.features.counters == ("cachegrind:branches", "cachegrind:l2_data_misses")
    assert len(records) == 14 * 14


def test_what_a_formula_put_in_is_found_in_victims_never_seen(report: KindReport) -> None:
    assert report.excluded > 0  # those that the formula puts at the boundary
    assert report.accuracies["application"].accuracy > 0.9
    assert report.accuracies["application"].margin_low > 0.2
    assert report.accuracies["family"].accuracy > 0.9
    assert report.rank_correlation > 0.95
    assert report.mean_error < 0.03
    assert 0.8 <= report.coverage <= 1.0
    assert report.accuracies["random"].low <= report.accuracies["random"].accuracy
    assert any("l2_data_misses" in name for name in report.kept)


def test_where_counters_report_nothing_the_report_does_not_say_they_do() -> None:
    noise = records_of(made_pairs(9, reach=0.0, noise=0.1, width=0.0, seed=3), dataset.PairKind.TIMESLICE)
    report = evaluate_kind(noise)
    assert report.accuracies["application"].margin_low <= 0
    assert abs(report.rank_correlation) < 0.3
    assert report.single == len(noise)  # one trial each: nothing could be excluded, and that is counted
    assert report.excluded == 0


def test_grouped_folds_keep_what_they_judge_out_of_what_they_fit(records: Records) -> None:
    for split in by_application(records, 3, seed=0):
        judged = set(records.victim[split.test].tolist())
        train = records.where(split.train)
        assert judged.isdisjoint([*train.victim.tolist(), *train.opponent.tolist()])
    families = np.array(records.families)
    for split in each_family(records, 0, 0):
        judged = set(families[records.victim[split.test]].tolist())
        train = records.where(split.train)
        assert judged.isdisjoint(families[np.concatenate((train.victim, train.opponent))].tolist())
    for split in by_pair(records, 3, seed=0):
        there = {frozenset(pair) for pair in zip(*_places(records, split.train), strict=True)}
        assert there.isdisjoint(frozenset(pair) for pair in zip(*_places(records, split.test), strict=True))
    for folds in (at_random, by_application, by_pair, each_application, each_family):
        tested = sum(split.test.astype(int) for split in folds(records, 3, 0))
        assert (np.asarray(tested) == 1).all()


def _places(records: Records, chosen: Any) -> tuple[list[int], list[int]]:
    return records.victim[chosen].tolist(), records.opponent[chosen].tolist()


def test_pairs_whose_interval_has_t_in_it_are_excluded_and_counted() -> None:
    records = records_of(made_pairs(8, width=0.05), dataset.PairKind.TIMESLICE)
    spans = (records.low <= 0.5) & (records.high >= 0.5)
    report = evaluate_kind(records)
    assert report.excluded == int(spans.sum()) > 0
    assert len(report.records) + report.excluded == len(records)


@pytest.mark.parametrize(
    ("trials", "harmful"),
    [
        ([[0.6, 0.61, 0.6], [0.5, 0.51, 0.5]], True),
        ([[0.5, 0.51, 0.5], [0.5, 0.5, 0.5]], False),
        ([[0.3, 0.8, 0.5], [0.5, 0.51, 0.5]], None),
        ([[0.3, 0.8, 0.5], [0.6, 0.61, 0.6]], True),
        ([[0.9], [0.5, 0.51, 0.5]], None),
    ],
)
def test_a_measured_pair_harms_where_an_interval_lies_above_a_twentieth_over_the_half(
    trials: list[list[float]], harmful: bool | None
) -> None:
    losses = {(str(place), "b"): estimate(values) for place, values in enumerate(trials)}
    found = MeasuredPair(dataset.PairKind.TIMESLICE, losses)
    assert found.threshold == pytest.approx(0.55)
    assert found.is_harmful is harmful


def test_t_follows_kind_and_multiplicity() -> None:
    assert threshold_of(dataset.PairKind.TIMESLICE) == 0.5
    assert threshold_of(dataset.PairKind.TIMESLICE, 4) == 0.75
    assert threshold_of(dataset.PairKind.CORES) == 0.05
    assert cut_of(7 / 3) == pytest.approx(0.3)


def test_clusters_part_what_loses_from_what_does_not(records: Records) -> None:
    groups = cluster(records, 4)
    assert len(groups.centres) == 4
    assert sorted(np.concatenate([groups.members(number) for number in range(4)]).tolist()) == list(range(14))
    for number in range(4):
        losses = records.loss[np.isin(records.victim, groups.members(number))]
        assert bool(groups.dangerous[number]) == (np.median(losses) > 0.5)
    assert 0 < groups.dangerous.sum() < 4


def test_stepwise_says_when_the_classes_are_parted_without_an_error() -> None:
    records = records_of(made_pairs(12, noise=0.0, width=0.0), dataset.PairKind.TIMESLICE)
    found = fit_stepwise(records)
    assert found.separated
    assert ((found.probabilities(records) > 0.5) == records.dangerous).mean() > 0.95


def test_a_model_survives_being_written(model: Model, tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    write_model(path, model)
    assert read_model(path) == model
    forecast = model.forecast("app0", "app1")
    assert read_model(path).forecast("app0", "app1") == forecast
    assert forecast.low < forecast.loss < forecast.high


def test_matrix_and_pair_say_the_same(model: Model) -> None:
    names = sorted(model.applications)
    scaled = model.counters_of(names)
    losses, likely = model.matrix(scaled, scaled)
    for i, victim in enumerate(names[:4]):
        for j, other in enumerate(names[:4]):
            forecast = model.forecast(victim, other)
            assert forecast.loss == pytest.approx(losses[i, j])
            assert forecast.probability == pytest.approx(likely[i, j])
            assert forecast.dangerous == (likely[i, j] > model.cut)


def test_a_new_application_is_judged_from_its_counters(model: Model, pairs: dataset.Pairs) -> None:
    own = pairs.counters.filter(pl.col("application") == "app3")
    values = {f"{row['source']}:{row['counter']}": row["value"] for row in own.iter_rows(named=True)}
    assert model.standardised(values) == pytest.approx(model.applications["app3"].counters, abs=1e-5)
    del values[model.counters[0]]
    with pytest.raises(InputError, match="needs the counter"):
        model.standardised(values)


@examples(60)
@given(st.data())
def test_a_damaged_model_is_one_line(data: st.DataObject) -> None:
    text = json.dumps(DAMAGED)
    at = data.draw(st.integers(0, len(text) - 1))
    word = data.draw(st.sampled_from(["", "\x00", "}", "1e999", "nan", "-", '"', "\n", "null", "🙂", "[[[["]))
    path = Path(TMP[0]) / "model.json"
    path.write_text(text[:at] + word + text[at + len(word or "x") :])
    reported = ""
    try:
        read_model(path)
    except InputError as error:
        reported = str(error)
    assert "\n" not in reported
    assert not reported or str(path) in reported


DAMAGED: dict[str, Any] = {}
TMP: list[str] = []


@pytest.fixture(autouse=True, scope="module")
def _damaged(model: Model, tmp_path_factory: pytest.TempPathFactory) -> None:
    TMP.append(str(tmp_path_factory.mktemp("damaged")))
    path = Path(TMP[0]) / "whole.json"
    write_model(path, model)
    DAMAGED.update(json.loads(path.read_text()))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 99}, "version is 99"),
        ({"kind": "moon"}, "kind"),
        ({"means": [1.0]}, "one a counter"),
        ({"scales": [0.0, 1.0]}, "above 0"),
        ({"cut": 7}, "cut"),
        ({"more": 1}, "more"),
        ({"counters": []}, "one a counter"),
    ],
)
def test_a_model_that_cannot_be_is_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    (path := tmp_path / "model.json").write_text(json.dumps({**DAMAGED, **change}))
    with pytest.raises(InputError, match=re.escape(message)):
        read_model(path)


def test_too_few_or_all_alike_is_said() -> None:
    with pytest.raises(InputError, match="too few"):
        evaluate_kind(records_of(made_pairs(4), dataset.PairKind.TIMESLICE))
    with pytest.raises(InputError, match="nothing to tell apart"):
        evaluate_kind(records_of(made_pairs(8), dataset.PairKind.TIMESLICE, threshold=0.99))
    with pytest.raises(InputError, match="no pairs of kind naive"):
        records_of(made_pairs(8), dataset.PairKind.NAIVE)


def test_applications_without_counters_are_left_out_and_named(pairs: dataset.Pairs) -> None:
    fewer = pairs.counters.filter(
        ~((pl.col("application") == "app2") & (pl.col("counter") == "l2_data_misses"))
    ).with_columns(value=pl.when(pl.col("application") == "app5").then(None).otherwise("value"))
    records = records_of(replace(pairs, counters=fewer), dataset.PairKind.TIMESLICE)
    assert records.features.left_out == {"app2": "cachegrind:l2_data_misses", "app5": "no counters"}
    assert len(records) == 12 * 12
    with pytest.raises(InputError, match="no counters that several"):
        features_of(pairs.counters.head(0), ["app1", "app2"])


def test_commands_fit_judge_and_answer(folder: Path, tmp_path: Path, cli: Cli) -> None:
    out, page = tmp_path / "model.json", tmp_path / "page.html"
    cli("predict", "fit", "--data", folder, "--out", out)
    assert "exists already" in cli.said("predict", "fit", "--data", folder, "--out", out, code=1)
    judged = cli.json("predict", "evaluate", "--data", folder, "--json", "--html", page)
    document = judged["kinds"]["timeslice"]
    assert set(document) >= {
        "records", "applications", "majority", "twins", "random", "pair", "application",
        "false_negatives", "rank_correlation",
    }  # fmt: skip
    assert set(document["random"]) >= {"accuracy", "low", "high"}
    text = page.read_text()
    assert "app0" in text
    assert re.findall(r'(?:src|href)="(?!#)[^"]*"', text) == []
    asked = cli("predict", "pair", "app0", "app1", "--model", out, "--json")
    answer = json.loads(asked.out)
    assert answer["well_matched"] == (not any(one["dangerous"] for one in answer["victims"]))
    assert CPU in asked.err  # the model is of another processor than this host's
    table = cli.json("predict", "matrix", "--model", out, "--apps", "app0,app1", "--json")
    assert len(table["pairs"]) == 4
    unknown = cli("predict", "pair", "app0", "x\n\x1b[31m", "--model", out, code=1)
    assert len(unknown.err.splitlines()) == 2  # of the processor, and of the name


def counted(path: Path, misses: float, branches: float = 0.1) -> str:
    """Write what ``osub predict counters --json`` prints of an application; return the option's word."""
    counts = {"l2_data_misses": misses, "branches": branches, "data_reads": 0.25, "l3_data_misses": None}
    rows = [{"counter": name, "per": "instruction", "value": value} for name, value in counts.items()]
    path.write_text(json.dumps({"os": [], "cachegrind": rows}))
    return f"mine={path}"


def test_an_application_of_which_only_counters_are_known_is_judged(
    model: Model, tmp_path: Path, cli: Cli
) -> None:
    write_model(path := tmp_path / "model.json", model)

    def loss(misses: float) -> float:
        word = counted(tmp_path / "mine.json", misses)
        document = cli.json("predict", "pair", "mine", "app0", "--model", path, "--counters", word, "--json")
        assert set(document["clusters"]) == {"mine", "app0"}
        return float(document["victims"][0]["loss"])

    # As the formula has it: who misses ten times as often in the cache loses more.
    assert loss(0.1) > loss(0.01) + 0.1 > loss(0.001) + 0.2
    word = counted(tmp_path / "mine.json", 0.1)
    words = ("--model", path, "--counters", word, "--apps", "mine,app1", "--json")
    table = cli.json("predict", "matrix", *words)
    assert {pair["victim"] for pair in table["pairs"]} == {"mine", "app1"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not what"),
        ("[1]", "is not what"),
        ('{"magic": []}', "is not what"),
        ('{"cachegrind": [{"counter": "PAPI_L2_DCM", "per": "moon", "value": 1}]}', "is not what"),
        ('{"cachegrind": [{"counter": "PAPI_L2_DCM", "per": "instruction", "value": -1}]}', "cannot be -1"),
        ('{"cachegrind": [{"counter": "PAPI_L2_DCM", "per": "instruction", "value": 1e31}]}', "cannot be"),
        ('{"os": []}', "the model needs the counter cachegrind:branches"),
        ('{"cachegrind": [{"counter": "PAPI_BR_INS", "per": "instruction", "value": null}]}', "and 1 more"),
        ("[" * 100_000, "is not what"),
    ],
)
def test_counters_that_cannot_be_or_differ_from_the_models_are_one_line(
    text: str, message: str, model: Model, tmp_path: Path, cli: Cli
) -> None:
    write_model(tmp_path / "model.json", model)
    (tmp_path / "mine.json").write_text(text)
    for word, code, why in (
        (f"mine={tmp_path / 'mine.json'}", 1, message),
        (f"mine={tmp_path / 'none.json'}", 1, "No such file"),
        ("mine", 2, "write NAME=FILE"),
    ):
        words = ("--model", tmp_path / "model.json", "--counters", word)
        assert why in cli.said("predict", "pair", "mine", "app0", *words, code=code)


@pytest.mark.parametrize(
    ("margin_low", "trusted"), [(None, False), (-0.1, False), (0.0, False), (0.01, True)]
)
def test_a_program_never_measured_is_unknown_unless_models_surely_beat_the_majority(
    margin_low: float | None, trusted: bool, model: Model, tmp_path: Path, cli: Cli
) -> None:
    seen = None
    if margin_low is not None:
        seen = UnseenVictims(accuracy=0.8, majority=0.7, margin_low=margin_low, margin_high=0.3)
    write_model(tmp_path / "model.json", msgspec.structs.replace(model, unseen=seen))
    words = ["predict", "pair", "mine", "app0", "--model", str(tmp_path / "model.json")]
    words += ["--counters", counted(tmp_path / "mine.json", 0.1)]
    asked = cli(*words).out
    answer = cli.json(*words, "--json")
    assert answer["unknown"] == ([] if trusted else ["mine"])
    assert (answer["well_matched"] is None) is not trusted
    assert ("unknown" in asked) is not trusted
    assert ("predict pair mine app0 --measure --program mine=" in asked) is not trusted
    measured = cli("predict", "pair", "app0", "app1", "--model", tmp_path / "model.json")
    assert "unknown" not in measured.out


def test_a_model_says_how_its_like_did_on_victims_never_seen(model: Model, report: KindReport) -> None:
    assert model.unseen is not None
    found = report.accuracies["application"]
    assert model.unseen.accuracy == pytest.approx(found.accuracy)
    assert model.unseen.margin_low == pytest.approx(found.margin_low)
    assert model.unseen.majority == pytest.approx(report.majority)


def test_older_files_call_simulated_counters_by_the_names_of_the_processors(
    pairs: dataset.Pairs, model: Model, tmp_path: Path
) -> None:
    former = {"l2_data_misses": "PAPI_L2_DCM", "branches": "PAPI_BR_INS", "data_reads": "PAPI_LD_INS"}
    of_the_cpu = {"application": "app0", "source": "perf", "counter": "PAPI_BR_INS", "per": "instruction"}
    renamed = pairs.counters.with_columns(pl.col("counter").replace(former))
    older = pl.concat((renamed, dataset.COUNTERS.frame([of_the_cpu | {"value": 0.1, "scaled": None}])))
    dataset.write_pairs(tmp_path / "pairs", replace(pairs, counters=older))
    read = dataset.read_pairs(tmp_path / "pairs").counters
    assert set(read.filter(source="cachegrind")["counter"]) == set(former)
    assert read.filter(source="perf")["counter"].to_list() == ["PAPI_BR_INS"]
    names = [f"cachegrind:{former[name.partition(':')[2]]}" for name in model.counters]
    write_model(tmp_path / "model.json", msgspec.structs.replace(model, counters=names))
    assert read_model(tmp_path / "model.json").counters == model.counters


def test_what_the_host_did_meanwhile_is_no_feature(pairs: dataset.Pairs) -> None:
    rows = [
        {"application": name, "source": "os", "counter": counter, "per": "second", "value": float(number)}
        for number, name in enumerate(pairs.applications["application"])
        for counter in ("run_delay", "switches_involuntary", "switches_voluntary")
    ]
    more = pl.concat((pairs.counters, dataset.COUNTERS.frame(rows)))
    found = features_of(more, pairs.applications["application"].to_list())
    assert "os:switches_voluntary" in found.counters
    assert not {"os:run_delay", "os:switches_involuntary"} & set(found.counters)


def test_who_sleeps_is_known_by_the_share_of_a_core_that_it_uses() -> None:
    rows = [
        {"application": name, "source": "os", "counter": counter, "per": "second", "value": value}
        for name, user, system in (("a", 0.3, 0.2), ("b", 0.9, 0.1), ("c", 0.5, 0.4))
        for counter, value in (("cpu_user", user), ("cpu_system", system))
    ]
    found = features_of(dataset.COUNTERS.frame(rows), ["a", "b", "c"])
    assert found.counters == ("os:cpu",)
    assert 10 ** found.values[:, 0] - found.floors[0] == pytest.approx([0.5, 1.0, 0.9])
    assert with_cpu({"os:cpu_user": 0.3, "os:cpu_system": 0.2, "x": 1.0}) == {"x": 1.0, "os:cpu": 0.5}
    assert with_cpu({"os:cpu_user": 0.3}) == {"os:cpu_user": 0.3}


def test_the_pairs_and_the_model_that_come_along_answer(cli: Cli) -> None:
    assert "sort with faults" in cli("predict", "pair", "sort", "faults").out


def test_a_matrix_may_be_of_what_was_measured(tmp_path: Path, cli: Cli) -> None:
    folder, table = tmp_path / "pairs", tmp_path / "m.csv"
    dataset.write_pairs(folder, with_stressors(made_pairs(8)))
    document = cli.json("predict", "matrix", "--data", folder, "--csv", table, "--json")
    assert (document["kind"], len(document["pairs"])) == ("timeslice", 64)
    assert table.read_text().splitlines()[0] == "victim,opponent,e_v,probability,dangerous"
    assert read_pair_table(table).applications == tuple(sorted(f"app{number}" for number in range(8)))
    losses = [(one["e_v"], one["dangerous"]) for one in document["pairs"]]
    assert all(dangerous == (loss > 0.55) for loss, dangerous in losses)
    assert any(0.5 < loss < 0.55 for loss, _ in losses)
    assert "2 app2" in cli("predict", "matrix", "--data", folder, "--apps", "app1,app2").out
    for words, code, expected in (
        (["--data", str(folder), "--csv", str(table)], 1, "--force"),
        (["--data", str(folder), "--apps", "tea"], 1, "no pair of tea"),
        (["--data", str(folder), "--model", "x"], 2, "--model and --data"),
        (["--kind", "cores"], 2, "--kind goes with --data"),
    ):
        assert expected in cli.said("predict", "matrix", *words, code=code)
