from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from foundation.errors import InputError
from osub.cli.trace.command import app

TRACE = b"""\
; Installation: Lab [bold]\x1b[31m
; MaxProcs: 8
1 0 -1 10 1 -1 -1 -1 20 -1 1 1 1 -1 0 -1 -1 -1
2 9 -1 10 4 -1 -1 -1 20 -1 1 1 1 -1 1 -1 -1 -1
"""


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "lab.swf"
    path.write_bytes(TRACE)
    return path


def test_info_prints_what_a_person_wants(trace: Path) -> None:
    result = CliRunner().invoke(app, ["info", str(trace)])
    assert result.exit_code == 0
    for words in ("Trace lab", "Jobs", "Serial jobs", "50.0%", "run time", "hour since"):
        assert words in result.output
    assert "nothing to remark" in result.output


def test_info_shows_foreign_text_without_obeying_it(trace: Path) -> None:
    output = CliRunner().invoke(app, ["info", str(trace)]).output
    assert "Lab [bold]\N{REPLACEMENT CHARACTER}[31m" in output
    assert "\x1b" not in output


def test_info_json_is_the_summary(trace: Path) -> None:
    result = CliRunner().invoke(app, ["info", str(trace), "--json"])
    data = json.loads(result.output)
    assert (data["jobs"], data["max_procs"], data["run_s"]["percentiles"]["50"]) == (2, 8, 10.0)


def test_info_stops_at_a_malformed_line_unless_lenient(trace: Path) -> None:
    trace.write_bytes(TRACE + b"3 x\n")
    with pytest.raises(InputError, match=r"lab\.swf:5: field 2"):
        CliRunner().invoke(app, ["info", str(trace)], catch_exceptions=False)
    result = CliRunner().invoke(app, ["info", str(trace), "--lenient", "--json"])
    assert json.loads(result.output)["remarks"][0] == "skipped, not a number: 1"
