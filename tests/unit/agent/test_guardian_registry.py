from __future__ import annotations

from pathlib import Path

import pytest

from gangd.guardian.registry import forget_folder, note_folder, noted_folders
from osub.errors import HostError


def test_folders_that_were_noted_are_found_until_they_are_gone(tmp_path: Path) -> None:
    registry = tmp_path / "run" / "known"
    one, other = tmp_path / "one", tmp_path / "with a\nline"
    for folder in (one, other, one):
        folder.mkdir(exist_ok=True)
        note_folder(folder, registry)
    assert set(noted_folders(registry)) == {one, other}
    other.rmdir()
    assert noted_folders(registry) == (one,)
    assert len(list(registry.iterdir())) == 1
    forget_folder(one, registry)
    assert noted_folders(registry) == ()


def test_without_notes_there_are_none(tmp_path: Path) -> None:
    assert noted_folders(tmp_path / "nowhere") == ()
    forget_folder(tmp_path, tmp_path / "nowhere")


def test_notes_in_a_folder_that_others_can_write_are_not_believed(tmp_path: Path) -> None:
    registry = tmp_path / "known"
    note_folder(tmp_path, registry)
    registry.chmod(0o777)
    assert noted_folders(registry) == ()
    with pytest.raises(HostError, match="cannot note"):
        note_folder(tmp_path, registry)


def test_a_note_that_is_a_link_or_too_long_is_none(tmp_path: Path) -> None:
    registry = tmp_path / "known"
    note_folder(tmp_path, registry)
    (tmp_path / "elsewhere").write_text(str(tmp_path))
    (registry / "link").symlink_to(tmp_path / "elsewhere")
    (registry / "long").write_text("/" + "x" * 5000)
    assert noted_folders(registry) == (tmp_path,)
