"""Pairs that others measured: what the archive says, and what is refused of it."""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from typer.testing import CliRunner

from foundation.errors import InputError
from osub.cli.predict.command import app
from predictor.dataset import PairKind, read_pairs, write_pairs
from predictor.dataset.dcslab import read_dcslab
from predictor.model.judged import few_of

HEADER = "l2miss,l3miss,instructions,cycles,stall_cycles,intra_coh,llc_size,local_mem,remote_mem"
REAL = Path(os.environ.get("OSUB_SHARED", "/nowhere")) / "traces" / "dcslab_bc5_corun_solo_8core.tar.gz"


def times(**seconds: float) -> str:
    return json.dumps({"runtime": seconds, "power": []})


def samples(misses: int, rows: int = 3) -> str:
    return (
        "\n".join([HEADER, *(f"{2 * misses},{misses},1000,800,{misses},1,5,{64 * misses},0",) * rows]) + "\n"
    )


def files_of(programs: int = 8) -> dict[str, str]:
    """Return the files of an archive with SP and others beside it; the more misses, the more is lost."""
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
    write_pairs(tmp_path / "pairs", pairs)
    read = read_pairs(tmp_path / "pairs")
    assert read.about.kinds == [PairKind.CORES]
    assert read.pairs.height == 16
    (row,) = read.pairs.filter(victim="p3", opponent="SP").to_dicts()
    # 70 s beside SP and 50 s alone, all of it in SP's 104 s.
    assert row["e_v"] == pytest.approx(20 / 70)
    assert row["e_o"] == pytest.approx(4 / 104)
    assert (row["ideal"], row["trials"], row["e_v_low"]) == (0.0, 1, None)
    (back,) = read.pairs.filter(victim="SP", opponent="p3").to_dicts()
    # SP lost its 4 s while both ran.
    assert back["e_v"] == pytest.approx(4 / 70)
    counted = {row["counter"]: row["value"] for row in read.counters.filter(application="p3").to_dicts()}
    assert counted["PAPI_L3_TCM"] == pytest.approx(4 / 1000)
    assert counted["PAPI_TOT_INS"] == pytest.approx(3000 / 50)


def test_few_pairs_give_groups_and_an_order_and_no_model(tmp_path: Path) -> None:
    pairs, _ = read_dcslab(archive(tmp_path, files_of()))
    few = few_of(pairs, PairKind.CORES)
    assert few is not None
    assert few.records == 16
    assert sorted(name for group in few.groups for name in group) == ["SP", *(f"p{n}" for n in range(8))]
    assert len(few.four) == 4
    assert few.low <= few.rank_correlation <= few.high
    two, _ = read_dcslab(archive(tmp_path, files_of(programs=2)))
    assert few_of(two, PairKind.CORES) is None


def test_the_command_writes_pairs_once_and_evaluate_says_what_they_are_good_for(tmp_path: Path) -> None:
    path, out = str(archive(tmp_path, files_of())), str(tmp_path / "pairs")
    run = CliRunner().invoke
    first = run(app, ["import", path, "--out", out])
    assert first.exit_code == 0, first.output
    assert "16 pairs of 9 applications" in first.output
    assert run(app, ["import", path, "--out", out]).exit_code == 1
    assert run(app, ["import", path, "--out", out, "--force"]).exit_code == 0
    told = run(app, ["evaluate", "--data", out, "--json"])
    assert told.exit_code == 0, told.output
    said = json.loads(told.output)
    assert said["kinds"] == {}
    assert said["few"]["cores"]["records"] == 16
    words = run(app, ["evaluate", "--data", out]).output
    assert "too few for a model of danger" in words


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
    plain = tmp_path / "plain"
    plain.write_bytes(b"no archive" * 200)
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
    assert slower["SP", "streamcluster"] == pytest.approx(1.15, abs=0.006)
    assert len(slower) == 14
