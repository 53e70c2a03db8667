from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from foundation.errors import InputError
from foundation.records import JOBS, RunWriter, load_run, write_run
from foundation.records.table_files import frame_of
from tests.fixtures.records import make_ended, make_info, make_job, make_trace


@pytest.fixture(name="run")
def _run(tmp_path: Path) -> Path:
    folder = tmp_path / "RUN"
    write_run(folder, make_info(), make_trace(tmp_path), frame_of([make_ended()], JOBS))
    return folder


def test_a_missing_folder_and_a_folder_without_a_run_say_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such folder"):
        load_run(tmp_path / "RUN")
    with pytest.raises(InputError, match=r"it has no run\.json"):
        load_run(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="file is not a RUN folder: it is a file"):
        load_run(tmp_path / "file")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a valid run description"),
        ("[]", "not a valid run description"),
        ('{"schema_version": 1}', "missing required field"),
        ('{"schema_version": 99}', "schema version 99 and this osub reads version 1"),
    ],
)
def test_a_wrong_description_says_where(run: Path, text: str, message: str) -> None:
    (run / "run.json").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        load_run(run)


def test_an_unknown_field_in_the_description_is_an_error(run: Path) -> None:
    path = run / "run.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"trial"', '"tiral"'), encoding="utf-8")
    with pytest.raises(InputError, match="tiral"):
        load_run(run)


def test_a_damaged_table_says_which(run: Path) -> None:
    (run / "jobs.parquet").write_bytes(b"PAR1 and then nothing")
    with pytest.raises(InputError, match=r"jobs\.parquet.*damaged or not Parquet"):
        load_run(run)


def test_a_table_is_checked_on_read(run: Path) -> None:
    path = run / "jobs.parquet"
    frame = pl.read_parquet(path)
    frame.with_columns(end_s=pl.lit(0.25)).write_parquet(path)
    with pytest.raises(InputError, match=r"jobs\.parquet: column end_s of trace_job 1: 0.25 is before"):
        load_run(run)
    frame.with_columns(wait_s=pl.lit(0.25)).write_parquet(path)
    with pytest.raises(InputError, match="unknown column wait_s"):
        load_run(run)
    with pytest.raises(InputError, match="unknown column wait_s"):
        load_run(run, placement=False)


def test_an_unfinished_run_can_be_read_without_placements(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "RUN", make_info(), make_trace(tmp_path)) as writer:
        writer.append_job(make_job())
        assert "placement" not in load_run(tmp_path / "RUN", placement=False).jobs.columns
