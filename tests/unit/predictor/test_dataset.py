from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import predictor
from foundation.errors import InputError, OutputError
from predictor.dataset import (
    APPLICATIONS,
    COUNTERS,
    PAIRS,
    SOLO,
    TRIALS,
    About,
    CounterSource,
    MeasuredHost,
    PairKind,
    Pairs,
    ideal_loss,
    opponent_loss,
    read_pairs,
    victim_loss,
    write_pairs,
)
from tests.fixtures.tier import examples

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOST = MeasuredHost(
    name="h", cpu_model="c", cpus=2, threads_per_core=1, l2_kib=2048, l3_kib=None, memory_mib=8000, kernel="6"
)


def small() -> Pairs:
    about = About(
        version=1,
        osub="0.1.0",
        host=HOST,
        started=NOON,
        ended=NOON + timedelta(minutes=1),
        kinds=[PairKind.TIMESLICE],
        counter_sources=[CounterSource.OS],
    )
    applications = APPLICATIONS.frame(
        [
            {"application": "a.S", "family": "a", "command": ["a", "-x"], "ranks": 1, "step": "a sweep"},
            {
                "application": "b",
                "family": "b",
                "command": ["b"],
                "ranks": 2,
                "footprint_kib": 8,
                "step": "1",
            },
        ]
    )
    counters = COUNTERS.frame(
        [
            {"application": "a.S", "source": "os", "counter": "faults", "per": "second", "value": 3.0},
            {"application": "a.S", "source": "perf", "counter": "PAPI_L2_DCM", "per": "instruction"},
        ]
    )
    solo = SOLO.frame(
        [
            {
                "application": "b",
                "kind": "timeslice",
                "trial": 1,
                "started": NOON,
                "wall_s": 1.0,
                "steps": 7.0,
                "speed": 7.0,
            }
        ]
    )
    trial = {
        "kind": "timeslice",
        "victim": "a.S",
        "opponent": "b",
        "trial": 1,
        "started": NOON,
        "speed_victim": 5.0,
        "speed_opponent": 4.0,
        "solo_victim_before": 10.0,
        "solo_victim_after": 10.0,
        "solo_opponent_before": 8.0,
        "solo_opponent_after": 8.0,
        "busy_victim": 1.0,
        "busy_opponent": 1.0,
        "e_v": 0.5,
        "e_o": 0.5,
    }
    pair = {
        "kind": "timeslice",
        "victim": "a.S",
        "opponent": "b",
        "trials": 1,
        "e_v": 0.5,
        "e_o": 0.5,
        "ideal": 0.5,
        "started": NOON,
        "ended": NOON,
    }
    return Pairs(about, applications, counters, solo, TRIALS.frame([trial]), PAIRS.frame([pair]))


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    content = small()
    write_pairs(tmp_path / "p", content)
    read = read_pairs(tmp_path / "p")
    assert read.about == content.about
    for (table, mine), (_, theirs) in zip(content.frames(), read.frames(), strict=True):
        assert mine.sort(table.key).equals(theirs)
    assert read.counters.filter(counter="PAPI_L2_DCM")["value"].to_list() == [None]


def test_the_order_of_rows_does_not_change_the_bytes(tmp_path: Path) -> None:
    content = small()
    turned = replace(
        content, applications=content.applications.reverse(), counters=content.counters.reverse()
    )
    for name, what in (("one", content), ("two", turned)):
        write_pairs(tmp_path / name, what)
    for table, _ in content.frames():
        assert (tmp_path / "one" / table.file_name).read_bytes() == (
            tmp_path / "two" / table.file_name
        ).read_bytes()


def test_writing_again_replaces_and_leaves_no_drafts(tmp_path: Path) -> None:
    write_pairs(tmp_path, small())
    write_pairs(tmp_path, small())
    assert len(list(tmp_path.iterdir())) == 6


@pytest.mark.parametrize(
    ("table", "column", "value", "words"),
    [
        ("applications", "application", "a b", "is no plain name"),
        ("applications", "application", "\x1b[31m", "is no plain name"),
        ("applications", "ranks", 0, "is below 1"),
        ("counters", "source", "tea leaves", "is no source"),
        ("counters", "per", "day", "is neither instruction nor second"),
        ("counters", "value", float("nan"), "is no finite number"),
        ("counters", "scaled", 1.5, "is not in 0 to 1"),
        ("counters", "application", "c", "is not in applications.parquet"),
        ("solo", "kind", "sleep", "is no kind of sharing"),
        ("solo", "kind", "gang", "is not in about.json"),
        ("solo", "speed", 0.0, "is not above 0"),
        ("trials", "busy_opponent", 0.0, "is not in 0 to 1"),
        ("trials", "e_v", None, "is null"),
        ("pairs", "e_v_low", 0.9, "is above e_v"),
        ("pairs", "trials", 0, "is below 1"),
        ("pairs", "opponent", "nobody", "is not in applications.parquet"),
    ],
)
def test_a_row_that_breaks_a_rule_is_refused_by_name(
    tmp_path: Path, table: str, column: str, value: object, words: str
) -> None:
    content = small()
    frames: dict[str, Any] = {each.name: frame for each, frame in content.frames()}
    frame = frames[table]
    frame = frame.with_columns(pl.lit(value, frame.schema[column]).alias(column)).unique(maintain_order=True)
    with pytest.raises(InputError, match=words) as error:
        write_pairs(tmp_path / "p", Pairs(content.about, **{**frames, table: frame.head(1)}))
    assert "\n" not in str(error.value)
    assert str(error.value).isprintable()
    assert not (tmp_path / "p").exists()


def test_a_pair_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    content = small()
    with pytest.raises(InputError, match=r"pairs.parquet: row 1: opponent b is there twice"):
        write_pairs(tmp_path, replace(content, pairs=pl.concat([content.pairs] * 2)))


def cut(folder: Path) -> None:
    path = folder / "pairs.parquet"
    path.write_bytes(path.read_bytes()[:-9])


def lose_column(folder: Path) -> None:
    pl.read_parquet(folder / "solo.parquet").drop("speed").write_parquet(folder / "solo.parquet")


def another_type(folder: Path) -> None:
    path = folder / "trials.parquet"
    pl.read_parquet(path).with_columns(pl.col("e_v").cast(pl.String)).write_parquet(path)


def another_version(folder: Path) -> None:
    path = folder / "about.json"
    path.write_text(path.read_text().replace('"version": 1', '"version": 9'))


def a_pipe(folder: Path) -> None:
    (folder / "about.json").unlink()
    os.mkfifo(folder / "about.json")


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (cut, "damaged or not Parquet"),
        (lose_column, "column speed is missing"),
        (another_type, "column e_v is String; expected Float64"),
        (another_version, "version is 9; this osub reads version 1"),
        (a_pipe, "no folder of measured pairs"),
        (lambda folder: (folder / "about.json").write_text("[" * 100_000), "about.json"),
        (lambda folder: (folder / "about.json").write_bytes(b"\xff"), "about.json"),
        (lambda folder: (folder / "about.json").write_text(" " * (1 << 20) + " {}"), "is longer than"),
        (lambda folder: (folder / "counters.parquet").unlink(), "counters.parquet is missing"),
        (shutil.rmtree, "no folder of measured pairs"),
    ],
)
def test_a_hostile_folder_is_one_line(tmp_path: Path, harm: Callable[[Path], object], words: str) -> None:
    folder = tmp_path / "p"
    write_pairs(folder, small())
    harm(folder)
    with pytest.raises(InputError, match=words) as error:
        read_pairs(folder)
    assert "\n" not in str(error.value)


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot make"):
        write_pairs(tmp_path / "file" / "p", small())


def test_unknown_words_in_the_description_are_refused(tmp_path: Path) -> None:
    write_pairs(tmp_path, small())
    told = msgspec.json.decode((tmp_path / "about.json").read_bytes())
    (tmp_path / "about.json").write_bytes(msgspec.json.encode({**told, "mood": "good"}))
    with pytest.raises(InputError, match="mood"):
        read_pairs(tmp_path)


@examples(50)
@given(
    dedicated_s=st.floats(1, 1e4),
    overlap_share=st.floats(0.05, 1),
    loss=st.floats(0, 0.9),
)
def test_loss_by_speeds_is_the_loss_by_times(dedicated_s: float, overlap_share: float, loss: float) -> None:
    # In T_OSub seconds, of which a share overlaps, the victim does T_Ded seconds of work (equation 4.1).
    shared_s = dedicated_s / (1 - overlap_share * loss)
    by_times = (shared_s - dedicated_s) / (overlap_share * shared_s)
    assert victim_loss(1 / dedicated_s, 1 / shared_s, overlap_share) == pytest.approx(by_times, abs=1e-9)


def test_ideal_losses() -> None:
    assert victim_loss(10, 5) == opponent_loss(8, 4) == ideal_loss(PairKind.TIMESLICE) == 0.5
    assert ideal_loss(PairKind.CORES) == 0
    assert ideal_loss(PairKind.NAIVE, 4) == 0.75


def test_the_data_that_come_with_osub_are_whole_and_say_where_they_were_measured() -> None:
    read = read_pairs(Path(predictor.__file__).parent / "data")
    assert read.pairs.height >= 600
    assert read.applications.height >= 25
    assert read.about.host.cpu_model
    assert read.pairs["trials"].sum() == read.trials.height
