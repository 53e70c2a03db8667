from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from foundation.errors import OutputError
from foundation.files import write_whole
from workloads.task.job_report import JobReport, check_writable, publish

REPORT = JobReport(
    app="eiba",
    kernel="smoother",
    state="completed",
    start_ms=1,
    end_ms=2,
    nodes=1,
    tasks=1,
    busy_s=0.12345678,
    residual=1e-300,
)


def test_line_is_one_json_object_with_null_for_the_unknown() -> None:
    line = REPORT.line()
    assert line.endswith("}\n")
    assert line.count("\n") == 1
    record = json.loads(line)
    assert record["busy_s"] == 0.123457
    assert record["residual"] == 1e-300
    assert record["idle_s"] is None


def test_published_report_is_printed_and_filed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    publish(REPORT, tmp_path / "report.json")
    assert (tmp_path / "report.json").read_text() == capsys.readouterr().out == REPORT.line()
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


def test_file_that_cannot_be_replaced_stays_and_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "report.json").mkdir()
    with pytest.raises(OutputError, match=r"cannot write .*report\.json"):
        write_whole(tmp_path / "report.json", "text", 0o644)
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_full_disk_on_standard_output_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123 - unbuffered semantics of the device matter
        monkeypatch.setattr("sys.stdout", full)
        with pytest.raises(OutputError, match="No space left"):
            publish(REPORT, None)
        os.dup2(os.open(os.devnull, os.O_WRONLY), full.fileno())


@pytest.mark.parametrize("name", ["missing/report.json", "."])
def test_report_file_is_refused_before_the_work(tmp_path: Path, name: str) -> None:
    with pytest.raises(OutputError):
        check_writable(tmp_path / name)


def test_no_report_file_is_fine() -> None:
    check_writable(None)
