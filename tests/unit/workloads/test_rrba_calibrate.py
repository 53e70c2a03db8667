from __future__ import annotations

import threading
from pathlib import Path

import pytest

from foundation.errors import InputError, OutputError
from workloads.rrba.steps.calibrations import (
    Calibration,
    Key,
    find_calibration,
    host_type,
    load_calibrations,
    store_calibration,
)

KEY = Key("x86_64, A, 2 CPUs", "jacobi", "64x64x64", 2, 1)


def calibration(key: Key = KEY, step_s: float = 0.001) -> Calibration:
    return Calibration(key, step_s, overhead_s=0.2, steps=1000, measured_ms=1)


def test_stored_calibration_is_found_by_its_key_alone(tmp_path: Path) -> None:
    path = tmp_path / "steps.json"
    store_calibration(path, calibration())
    assert find_calibration(path, KEY) == calibration()
    assert find_calibration(path, Key("x86_64, B, 2 CPUs", "jacobi", "64x64x64", 2, 1)) is None
    assert find_calibration(path, Key(KEY.host_type, "jacobi", "64x64x64", 4, 1)) is None


def test_newer_calibration_takes_the_place_of_the_older(tmp_path: Path) -> None:
    path = tmp_path / "steps.json"
    other = Key(KEY.host_type, "jacobi", "64x64x64", 1, 1)
    store_calibration(path, calibration(step_s=0.001))
    store_calibration(path, calibration(other, step_s=0.5))
    store_calibration(path, calibration(step_s=0.002))
    assert {entry.key: entry.step_s for entry in load_calibrations(path)} == {KEY: 0.002, other: 0.5}


def test_jobs_that_store_together_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "steps.json"
    keys = [Key(KEY.host_type, "jacobi", "64x64x64", ranks, 1) for ranks in range(1, 9)]
    threads = [threading.Thread(target=store_calibration, args=(path, calibration(key))) for key in keys]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {entry.key for entry in load_calibrations(path)} == set(keys)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        '{"schema": 2, "entries": []}',
        '{"schema": 1, "entries": [{"key": 1}]}',
        "\x00",
    ],
)
def test_file_of_another_form_is_refused_and_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "steps.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"steps\.json"):
        find_calibration(path, KEY)
    with pytest.raises(InputError):
        store_calibration(path, calibration())
    assert path.read_text() == text


def test_step_of_no_time_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "steps.json"
    store_calibration(path, calibration(step_s=0.0))
    with pytest.raises(InputError, match=r"a step of 0\.0 s"):
        load_calibrations(path)


def test_missing_file_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--calibrate-s"):
        find_calibration(tmp_path / "steps.json", KEY)


def test_folder_that_is_not_there_cannot_be_stored_in(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot write calibration"):
        store_calibration(tmp_path / "missing" / "steps.json", calibration())


def test_host_type_names_the_processor(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nmodel name\t: Some   CPU @ 2 GHz\n\n")
    assert ", Some CPU @ 2 GHz, " in host_type(cpuinfo)
    assert ", unknown processor, " in host_type(tmp_path / "missing")
