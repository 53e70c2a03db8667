from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from foundation.errors import HostError
from gangd.guardian.state_folders import forget_folder, note_folder, noted_folders, registry_folders


def as_user(user: int, call: Callable[[], str]) -> str:
    """Return what a call returns in a process of another user."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
            os.write(writing, call().encode())
        except BaseException as error:
            os.write(writing, repr(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read().decode()
    os.waitpid(child, 0)
    return said


def found_by_user(shm: Path, own: Path) -> str:
    note_folder(own, registry_folders(shm))
    return " ".join(map(str, noted_folders(registry_folders(shm))))


def test_folders_that_were_noted_are_found_until_they_are_gone(tmp_path: Path) -> None:
    registry = tmp_path / "run" / "known"
    one, other = tmp_path / "one", tmp_path / "with a\nline"
    for folder in (one, other, one):
        folder.mkdir(exist_ok=True)
        note_folder(folder, [registry])
    assert set(noted_folders([registry])) == {one, other}
    other.rmdir()
    assert noted_folders([registry]) == (one,)
    assert len(list(registry.iterdir())) == 1
    forget_folder(one, [registry])
    assert noted_folders([registry]) == ()


def test_without_notes_there_are_none(tmp_path: Path) -> None:
    assert noted_folders([tmp_path / "nowhere"]) == ()
    forget_folder(tmp_path, [tmp_path / "nowhere"])


def test_notes_in_a_folder_that_others_can_write_are_not_believed_and_another_one_is_made(
    tmp_path: Path,
) -> None:
    registry = tmp_path / "known"
    note_folder(tmp_path, [registry])
    registry.chmod(0o777)
    assert noted_folders([registry]) == ()
    note_folder(tmp_path, [registry])
    (other,) = tmp_path.glob("known-*")
    assert noted_folders([registry, other]) == (tmp_path,)
    assert other.stat().st_mode & 0o777 == 0o700


def test_where_nothing_can_be_noted_an_agent_is_informed(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(HostError, match="cannot note"):
        note_folder(tmp_path, [tmp_path / "file" / "known"])


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be two other users")
def test_a_taken_name_of_a_users_registry_hinders_no_user() -> None:
    """A stranger makes the folder, a link and files of that name first; the user's agent notes and finds."""
    user, stranger = 61_235, 61_236
    with tempfile.TemporaryDirectory(prefix="osub-registry-") as folder:
        shm, own = Path(folder, "shm"), Path(folder, "own")
        for path, mode, owner in ((Path(folder), 0o755, 0), (shm, 0o1777, 0), (own, 0o700, user)):
            path.mkdir(exist_ok=True)
            path.chmod(mode)
            os.chown(path, owner, owner)
        taken = shm / f"gangd-{user}-known"
        taken.mkdir(mode=0o777)
        os.chown(taken, stranger, stranger)
        (shm / f"gangd-{user}-known-0").symlink_to(own)
        os.chown(shm / f"gangd-{user}-known-0", stranger, stranger, follow_symlinks=False)
        assert as_user(user, lambda: found_by_user(shm, own)) == str(own)
        assert list(taken.iterdir()) == []
        assert list(own.iterdir()) == []


def test_a_note_that_is_a_link_or_too_long_is_none(tmp_path: Path) -> None:
    registry = tmp_path / "known"
    note_folder(tmp_path, [registry])
    (tmp_path / "elsewhere").write_text(str(tmp_path))
    (registry / "link").symlink_to(tmp_path / "elsewhere")
    (registry / "long").write_text("/" + "x" * 5000)
    assert noted_folders([registry]) == (tmp_path,)
