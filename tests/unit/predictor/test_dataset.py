"""Data sets of pairs, and those of dcslab."""

from __future__ import annotations

import io
import json
import os
import shutil
import tarfile
from collections.abc import Callable, Mapping
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
from predictor import dataset
from predictor.dcslab import read_dcslab
from predictor.model.judged import few_of
from tests.fixtures.cli import Cli
from tests.fixtures.tier import examples

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)

HOST = dataset.MeasuredHost(
    name="h", cpu_model="c", cpus=2, threads_per_core=1, l2_kib=2048, l3_kib=None, memory_mib=8000, kernel="6"
)


def small() -> dataset.Pairs:
    about = dataset.About(
        version=1, osub="0.1.0", host=HOST, started=NOON, ended=NOON + timedelta(minutes=1),
        kinds=[dataset.PairKind.TIMESLICE], counter_sources=[dataset.CounterSource.OS],
    )  # fmt: skip
    applications = dataset.APPLICATIONS.frame(
        [
            {"application": "a.S", "family": "a", "command": ["a", "-x"], "ranks": 1, "step": "a sweep"},
            {
                "application": "b", "family": "b", "command": ["b"], "ranks": 2, "footprint_kib": 8,
                "step": "1",
            },
        ]
    )  # fmt: skip
    counters = dataset.COUNTERS.frame(
        [
            {"application": "a.S", "source": "os", "counter": "faults", "per": "second", "value": 3.0},
            {"application": "a.S", "source": "perf", "counter": "PAPI_L2_DCM", "per": "instruction"},
        ]
    )
    solo = dataset.SOLO.frame(
        [
            {
                "application": "b", "kind": "timeslice", "trial": 1, "started": NOON, "wall_s": 1.0,
                "steps": 7.0, "speed": 7.0,
            }
        ]
    )  # fmt: skip
    trial = {
        "kind": "timeslice", "victim": "a.S", "opponent": "b", "trial": 1, "started": NOON,
        "speed_victim": 5.0, "speed_opponent": 4.0, "solo_victim_before": 10.0,
        "solo_victim_after": 10.0, "solo_opponent_before": 8.0, "solo_opponent_after": 8.0,
        "busy_victim": 1.0, "busy_opponent": 1.0, "e_v": 0.5, "e_o": 0.5,
    }  # fmt: skip
    pair = {
        "kind": "timeslice", "victim": "a.S", "opponent": "b", "trials": 1, "e_v": 0.5, "e_o": 0.5,
        "ideal": 0.5, "started": NOON, "ended": NOON,
    }  # fmt: skip
    return dataset.Pairs(
        about, applications, counters, solo, dataset.TRIALS.frame([trial]), dataset.PAIRS.frame([pair])
    )


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    content = small()
    dataset.write_pairs(tmp_path / "p", content)
    read = dataset.read_pairs(tmp_path / "p")
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
        dataset.write_pairs(tmp_path / name, what)
    for table, _ in content.frames():
        assert (tmp_path / "one" / table.file_name).read_bytes() == (
            tmp_path / "two" / table.file_name
        ).read_bytes()


def test_writing_again_replaces_and_leaves_no_drafts(tmp_path: Path) -> None:
    dataset.write_pairs(tmp_path, small())
    dataset.write_pairs(tmp_path, small())
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
        ("pairs", "opponent", "unknown", "is not in applications.parquet"),
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
        dataset.write_pairs(tmp_path / "p", dataset.Pairs(content.about, **{**frames, table: frame.head(1)}))
    assert "\n" not in str(error.value)
    assert str(error.value).isprintable()
    assert not (tmp_path / "p").exists()


def test_a_pair_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    content = small()
    with pytest.raises(InputError, match=r"pairs.parquet: row 1: opponent b is there twice"):
        dataset.write_pairs(tmp_path, replace(content, pairs=pl.concat([content.pairs] * 2)))


def cut(folder: Path) -> None:
    (path := folder / "pairs.parquet").write_bytes(path.read_bytes()[:-9])


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
    dataset.write_pairs(folder, small())
    harm(folder)
    with pytest.raises(InputError, match=words) as error:
        dataset.read_pairs(folder)
    assert "\n" not in str(error.value)


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot make"):
        dataset.write_pairs(tmp_path / "file" / "p", small())


def test_unknown_words_in_the_description_are_refused(tmp_path: Path) -> None:
    dataset.write_pairs(tmp_path, small())
    document = msgspec.json.decode((tmp_path / "about.json").read_bytes())
    (tmp_path / "about.json").write_bytes(msgspec.json.encode({**document, "mood": "good"}))
    with pytest.raises(InputError, match="mood"):
        dataset.read_pairs(tmp_path)


@examples(50)
@given(dedicated_s=st.floats(1, 1e4), overlap_share=st.floats(0.05, 1), loss=st.floats(0, 0.9))
def test_loss_by_speeds_is_the_loss_by_times(dedicated_s: float, overlap_share: float, loss: float) -> None:
    # In T_OSub seconds, of which a share overlaps, the victim does T_Ded seconds of work (equation 4.1).
    shared_s = dedicated_s / (1 - overlap_share * loss)
    by_times = (shared_s - dedicated_s) / (overlap_share * shared_s)
    assert dataset.victim_loss(1 / dedicated_s, 1 / shared_s, overlap_share) == pytest.approx(
        by_times, abs=1e-9
    )


def test_ideal_losses() -> None:
    assert (
        dataset.victim_loss(10, 5)
        == dataset.opponent_loss(8, 4)
        == dataset.ideal_loss(dataset.PairKind.TIMESLICE)
        == 0.5
    )
    assert dataset.ideal_loss(dataset.PairKind.CORES) == 0
    assert dataset.ideal_loss(dataset.PairKind.NAIVE, 4) == 0.75
    assert [
        dataset.harmful_loss(*one)
        for one in ((dataset.PairKind.TIMESLICE, 2), (dataset.PairKind.GANG, 4), (dataset.PairKind.CORES, 2))
    ] == [pytest.approx(loss) for loss in (0.55, 0.8, 0.05)]


def test_the_data_that_come_with_osub_are_whole_and_say_where_they_were_measured() -> None:
    read = dataset.read_pairs(Path(predictor.__file__).parent / "data")
    assert read.pairs.height >= 600
    assert read.applications.height >= 25
    assert read.about.host.cpu_model
    assert read.pairs["trials"].sum() == read.trials.height


HEADER = "l2miss,l3miss,instructions,cycles,stall_cycles,intra_coh,llc_size,local_mem,remote_mem"
REAL = Path(os.environ.get("OSUB_SHARED", "/nowhere")) / "traces" / "dcslab_bc5_corun_solo_8core.tar.gz"


def times(**seconds: float) -> str:
    return json.dumps({"runtime": seconds, "power": []})


def samples(misses: int, rows: int = 3) -> str:
    return (
        "\n".join([HEADER, *(f"{2 * misses},{misses},1000,800,{misses},1,5,{64 * misses},0",) * rows]) + "\n"
    )


def files_of(programs: int = 8) -> dict[str, str]:
    """Return the files of an archive with SP and others on its cores; the more misses, the more is lost."""
    found = {
        "./bc5/solorun/8core/NPB/SP/result.json": times(SP=100.0),
        "./bc5/solorun/8core/NPB/SP/config.json": "{}",
        "./bc5/solorun/8core/NPB/SP/perf/SP.csv": samples(20),
        "./bc5/solorun/8core/parsec/x264/config.json": "{}",
    }
    for number in range(programs):
        name = f"p{number}"
        found[f"./bc5/solorun/8core/parsec/{name}/result.json"] = times(**{name: 50.0})
        found[f"./bc5/solorun/8core/parsec/{name}/perf/{name}.csv"] = samples(number + 1)
        found[f"./bc5/corun/8core/{name}-sp/result.json"] = times(
            **{name: 55.0 + 5 * number, "SP": 101.0 + number}
        )
    return found


def archive(folder: Path, files: Mapping[str, str]) -> Path:
    path = folder / "bc5.tar.gz"
    with tarfile.open(path, "w:gz") as made:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            made.addfile(member, io.BytesIO(text.encode()))
    return path


def test_losses_are_of_the_overlap_and_counters_of_an_instruction(tmp_path: Path) -> None:
    pairs, notes = read_dcslab(archive(tmp_path, files_of()))
    assert notes == ["x264 was run alone, and has no result"]
    dataset.write_pairs(tmp_path / "pairs", pairs)
    read = dataset.read_pairs(tmp_path / "pairs")
    assert (read.about.kinds, read.pairs.height) == ([dataset.PairKind.CORES], 16)
    (row,) = read.pairs.filter(victim="p3", opponent="SP").to_dicts()
    # 70 s with SP and 50 s alone, all of it in SP's 104 s.
    assert (row["e_v"], row["e_o"]) == (pytest.approx(20 / 70), pytest.approx(4 / 104))
    assert (row["ideal"], row["trials"], row["e_v_low"]) == (0.0, 1, None)
    (back,) = read.pairs.filter(victim="SP", opponent="p3").to_dicts()
    # SP lost its 4 s while both ran.
    assert back["e_v"] == pytest.approx(4 / 70)
    counted = {row["counter"]: row["value"] for row in read.counters.filter(application="p3").to_dicts()}
    assert counted["PAPI_L3_TCM"] == pytest.approx(4 / 1000)
    assert counted["PAPI_TOT_INS"] == pytest.approx(3000 / 50)


@pytest.mark.slow
def test_few_pairs_give_groups_and_an_order_and_no_model(tmp_path: Path) -> None:
    pairs, _ = read_dcslab(archive(tmp_path, files_of()))
    few = few_of(pairs, dataset.PairKind.CORES)
    assert few is not None
    assert few.records == 16
    assert sorted(name for group in few.groups for name in group) == ["SP", *(f"p{n}" for n in range(8))]
    assert len(few.four) == 4
    assert few.low <= few.rank_correlation <= few.high
    two, _ = read_dcslab(archive(tmp_path, files_of(programs=2)))
    assert few_of(two, dataset.PairKind.CORES) is None


@pytest.mark.slow
def test_the_command_writes_pairs_once_and_evaluate_says_what_they_are_good_for(
    tmp_path: Path, cli: Cli
) -> None:
    path, out = archive(tmp_path, files_of()), tmp_path / "pairs"
    assert "16 pairs of 9 applications" in cli("predict", "import", path, "--out", out).err
    cli.said("predict", "import", path, "--out", out, code=1)
    cli("predict", "import", path, "--out", out, "--force")
    said = cli.json("predict", "evaluate", "--data", out, "--json")
    assert (said["kinds"], said["few"]["cores"]["records"]) == ({}, 16)
    assert "too few for a model of danger" in cli("predict", "evaluate", "--data", out).out


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("./bc5/solorun/8core/NPB/SP/result.json", "[]", "no run times"),
        ("./bc5/solorun/8core/NPB/SP/result.json", "{", "no run times"),
        ("./bc5/solorun/8core/NPB/SP/result.json", times(SP=-1), "SP ran for -1"),
        ("./bc5/solorun/8core/NPB/SP/result.json", '{"runtime": {"SP": NaN}}', "SP ran for nan"),
        ("./bc5/solorun/8core/NPB/SP/result.json", times(SP=1, LU=2), "has 2 run times"),
        ("./bc5/corun/8core/p1-sp/result.json", times(p1=1), "has 1 run time"),
        ("./bc5/corun/8core/p1-sp/result.json", times(**{"\x1b[2J": 1, "SP": 2}), "no plain name"),
        ("./bc5/solorun/8core/NPB/SP/perf/SP.csv", "", "is empty"),
        ("./bc5/solorun/8core/NPB/SP/perf/SP.csv", HEADER + "\n1,2\n", "line 2 has 2 values"),
        ("./bc5/solorun/8core/NPB/SP/perf/SP.csv", HEADER + "\n" + "x," * 8 + "x\n", "line 2"),
        ("./bc5/solorun/8core/NPB/SP/perf/SP.csv", HEADER + "\n" + "0," * 8 + "0\n", "impossible"),
        ("./bc5/solorun/8core/NPB/SP/perf/SP.csv", HEADER + "\n" + "nan," * 8 + "1\n", "impossible"),
    ],
)
def test_a_damaged_file_is_named_in_one_line(tmp_path: Path, name: str, text: str, said: str) -> None:
    path = archive(tmp_path, {**files_of(), name: text})
    with pytest.raises(InputError, match=said) as error:
        read_dcslab(path)
    assert "\n" not in str(error.value)
    assert "\x1b" not in str(error.value)


def test_only_plain_files_are_looked_at_and_other_archives_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "links.tar"
    with tarfile.open(path, "w") as made:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE):
            member = tarfile.TarInfo("./bc5/solorun/8core/NPB/SP/result.json")
            member.type, member.linkname = kind, "/etc/passwd"
            made.addfile(member)
    with pytest.raises(InputError, match="no two programs"):
        read_dcslab(path)
    (plain := tmp_path / "plain").write_bytes(b"no archive" * 200)
    with pytest.raises(InputError, match="no tar archive"):
        read_dcslab(plain)
    whole = archive(tmp_path, files_of()).read_bytes()
    plain.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError):
        read_dcslab(plain)
    with pytest.raises(InputError, match="cannot read"):
        read_dcslab(tmp_path / "nothing")


@pytest.mark.skipif(not REAL.exists(), reason="no dcslab archive: set OSUB_SHARED to where `traces` is")
def test_the_published_archive_has_the_losses_that_are_known_of_it() -> None:
    pairs, notes = read_dcslab(REAL)
    assert pairs.applications.height == 27
    assert notes == ["x264 was run alone, and has no result"]
    slower = {
        (row["victim"], row["opponent"]): row["solo_victim_before"] / row["speed_victim"]
        for row in pairs.trials.to_dicts()
    }
    known = {"canneal": 2.02, "streamcluster": 1.52, "fluidanimate": 1.26, "raytrace": 1.19, "freqmine": 1.09}
    known |= {"kmeans": 1.05, "nn": 1.04}
    for name, factor in known.items():
        assert slower[name, "SP"] == pytest.approx(factor, abs=0.006)
    assert slower["SP", "nn"] == pytest.approx(1.0, abs=0.006)
    assert (slower["SP", "streamcluster"], len(slower)) == (pytest.approx(1.15, abs=0.006), 14)
