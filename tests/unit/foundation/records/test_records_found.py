"""RUNs below a folder are found and removed: they, and nothing that no run made."""

from __future__ import annotations

from pathlib import Path

import pytest

from foundation.errors import InputError, OutputError
from foundation.records import RunWriter
from foundation.records.records_folder import find_runs, remove_run
from osub.cli.main import run
from tests.fixtures.cli import Cli
from tests.fixtures.records import make_ended, make_info, make_trace


def made(path: Path, *, finished: bool = True) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with RunWriter.create(path, make_info(), make_trace(path.parent)) as writer:
        writer.append_job(make_ended(1))
        writer.event("begun")
        (path / "jobs").mkdir()
        (path / "jobs" / "1.out").write_text("said\n")
        if finished:
            writer.finish(wall_s=1)
    return path


def test_runs_are_found_at_some_depth_and_not_through_links(tmp_path: Path) -> None:
    made(tmp_path / "a" / "one")
    made(tmp_path / "b" / "c" / "two", finished=False)
    (tmp_path / "link").symlink_to(tmp_path / "a")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.json").write_text("{")
    found = list(find_runs(tmp_path))
    assert [str(one.path.relative_to(tmp_path)) for one in found] == ["a/one", "b/c/two", "broken"]
    assert [one.is_finished for one in found] == [True, False, False]
    assert found[0].size_bytes > 0
    assert found[2].info is None
    assert found[2].fault is not None
    assert next(iter(find_runs(tmp_path / "a" / "one"))).path == tmp_path / "a" / "one"
    with pytest.raises(InputError, match="cannot look for runs"):
        list(find_runs(tmp_path / "nowhere"))


def test_a_run_is_removed_whole(tmp_path: Path) -> None:
    path = made(tmp_path / "one")
    assert remove_run(path) == []
    assert not path.exists()


def test_what_no_run_made_stays(tmp_path: Path) -> None:
    path, outside = made(tmp_path / "one"), tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("x")
    (path / "notes.txt").write_text("mine")
    (path / "slices.parquet").symlink_to(outside / "precious")
    (path / "mine.partial").mkdir()
    assert remove_run(path) == ["mine.partial", "notes.txt"]
    assert sorted(entry.name for entry in path.iterdir()) == ["mine.partial", "notes.txt"]
    assert (outside / "precious").exists()


def test_a_jobs_folder_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    path, outside = made(tmp_path / "one"), tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("x")
    (path / "jobs" / "1.out").unlink()
    (path / "jobs").rmdir()
    (path / "jobs").symlink_to(outside)
    assert remove_run(path) == ["jobs"]
    assert (outside / "precious").exists()


def test_a_run_that_goes_on_is_not_removed(tmp_path: Path) -> None:
    path = made(tmp_path / "one", finished=False)
    with pytest.raises(OutputError, match="not finished"):
        remove_run(path)
    writer = RunWriter.reopen(path)
    with pytest.raises(OutputError, match="another process is writing"):
        remove_run(path, unfinished=True)
    writer.close()
    assert remove_run(path, unfinished=True) == []


def test_other_folders_and_links_are_no_runs(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "link").symlink_to(made(tmp_path / "one"))
    for path in (tmp_path / "plain", tmp_path / "link", tmp_path / "nowhere"):
        with pytest.raises(InputError):
            remove_run(path)
    assert (tmp_path / "one" / "run.json").exists()


def test_the_command_lists_and_removes(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    path = made(tmp_path / "one")
    (facts,) = cli.json("runs", "list", tmp_path, "--json")
    assert (facts["run"], facts["finished"], facts["fault"]) == (str(path), True, None)
    printed = cli("runs", "list", tmp_path)
    assert str(path) in printed.out
    assert "nothing was removed" in cli("runs", "remove", path, tmp_path, "--yes", code=2).err
    assert run(["runs", "remove", str(path), "--json"]) == 2
    assert path.exists()
    assert run(["runs", "remove", str(path), "--yes"]) == 0
    assert not path.exists()
    assert "no runs in" in cli("runs", "list", tmp_path).out
