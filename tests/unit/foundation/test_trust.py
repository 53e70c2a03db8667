"""Files and folders that may be believed: links, owners and modes on every component of a path."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from foundation.errors import TrustError
from foundation.files import write_in
from foundation.trust import (
    behind_links,
    make_folder,
    names_in,
    open_folder,
    open_own,
    read_file,
    read_trusted,
)

OTHER = 61_234
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file to somebody else")


def opens(path: Path, *, own: bool = True) -> bool:
    os.close(open_folder(path, own=own))
    return True


@pytest.fixture
def sticky(tmp_path: Path) -> Path:
    """A folder like ``/tmp``."""
    folder = tmp_path / "sticky"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


def test_a_folder_of_ones_own_opens_below_sticky_ones_too(sticky: Path) -> None:
    (sticky / "a").mkdir()
    assert opens(sticky / "a")


def test_a_folder_that_others_may_write_is_no_place_to_keep_things(
    sticky: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foundation.trust._is_own_group", lambda _: False)
    with pytest.raises(TrustError, match="others may write"):
        opens(sticky)
    (tmp_path / "open").mkdir(mode=0o755)
    for mode in (0o777, 0o775, 0o722):
        (tmp_path / "open").chmod(mode)
        with pytest.raises(TrustError, match=r"others may write .*chmod go-w"):
            opens(tmp_path / "open")


def test_files_below_a_folder_that_others_may_write_are_not_trusted(tmp_path: Path) -> None:
    inner = tmp_path / "open" / "inner"
    inner.mkdir(parents=True)
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(TrustError, match=r"everybody who may write to .*open"):
        opens(inner)
    (tmp_path / "open").chmod(0o1777)
    assert opens(inner)


@as_root
@pytest.mark.parametrize("whose", ["a", "a/b", "a/b/c"])
def test_no_component_may_belong_to_another_user(tmp_path: Path, whose: str) -> None:
    folder = tmp_path / "a" / "b" / "c"
    folder.mkdir(parents=True)
    assert opens(folder)
    os.chown(tmp_path / whose, OTHER, -1)
    with pytest.raises(TrustError, match=f"user id {OTHER}"):
        opens(folder)


@as_root
def test_a_strangers_link_is_not_followed(sticky: Path, tmp_path: Path) -> None:
    (tmp_path / "real" / "inner").mkdir(parents=True)
    (sticky / "link").symlink_to(tmp_path / "real")
    os.chown(sticky / "link", OTHER, -1, follow_symlinks=False)
    with pytest.raises(TrustError, match=f"link that user id {OTHER} made"):
        opens(sticky / "link" / "inner")
    with pytest.raises(TrustError, match="is a link"):
        opens(sticky / "link")


def test_links_on_the_way_are_followed_where_no_other_user_may_write(sticky: Path, tmp_path: Path) -> None:
    (tmp_path / "real" / "inner").mkdir(parents=True)
    (tmp_path / "absolute").symlink_to(tmp_path / "real")
    (tmp_path / "relative").symlink_to("sticky/../real/.")
    assert opens(tmp_path / "absolute" / "inner")
    assert opens(tmp_path / "relative" / "inner")
    with pytest.raises(TrustError, match="is a link"):
        opens(tmp_path / "absolute")
    # In a sticky folder a stranger can have made a second name of a link of ours.
    (sticky / "ours").symlink_to(tmp_path / "real")
    with pytest.raises(TrustError, match="is a link"):
        opens(sticky / "ours" / "inner")


def test_a_circle_of_links_ends(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        opens(tmp_path / "a" / "c")


def test_a_file_on_the_way_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "inner"):
        with pytest.raises(NotADirectoryError):
            opens(path)


def test_folders_are_made_with_those_above(tmp_path: Path) -> None:
    fd, made = make_folder(tmp_path / "a" / "b", 0o700)
    os.close(fd)
    assert made
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    fd, made = make_folder(tmp_path / "a" / "b", 0o700)
    os.close(fd)
    assert not made


@as_root
def test_roots_folder_is_good_enough_for_reading_only() -> None:
    """What the rules say of a plain user, tried as one."""
    folder = Path("/usr/lib")
    script = (
        "import os; from pathlib import Path; from foundation.errors import TrustError\n"
        "from foundation.trust import *\n"
        f"os.seteuid({OTHER})\n"
        "for own in (False, True):\n"
        f"    try: open_folder(Path({str(folder)!r}), own=own); print('yes')\n"
        "    except TrustError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd="/")
    first, second = done.stdout.splitlines()
    assert first == "yes"
    assert "belongs to user root" in second


@pytest.fixture
def folder_fd(tmp_path: Path) -> Iterator[int]:
    fd = open_folder(tmp_path)
    yield fd
    os.close(fd)


def test_files_are_replaced_whole_with_the_mode_that_was_asked_for(tmp_path: Path, folder_fd: int) -> None:
    old = os.umask(0o077)
    try:
        write_in(folder_fd, "a", b"one", 0o644)
        write_in(folder_fd, "a", b"two", 0o640)
    finally:
        os.umask(old)
    assert read_file(folder_fd, "a") == b"two"
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640
    assert names_in(folder_fd) == ["a"]


def test_what_a_kill_left_is_no_obstacle_and_a_link_in_its_place_leads_nowhere(
    tmp_path: Path, folder_fd: int
) -> None:
    (tmp_path / "precious").write_text("mine")
    (tmp_path / ".a.new").symlink_to(tmp_path / "precious")
    (tmp_path / "a").symlink_to(tmp_path / "precious")
    write_in(folder_fd, "a", b"x")
    assert (tmp_path / "precious").read_text() == "mine"
    assert not (tmp_path / "a").is_symlink()


def test_links_pipes_and_folders_are_no_files(tmp_path: Path, folder_fd: int) -> None:
    (tmp_path / "real").write_text("x")
    (tmp_path / "link").symlink_to("real")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("link", "pipe", "folder"):
        with pytest.raises(TrustError):
            read_file(folder_fd, name)
    for name in ("link", "pipe"):
        with pytest.raises(TrustError):
            open_own(folder_fd, name, os.O_RDWR | os.O_CREAT)
    with pytest.raises(FileNotFoundError):
        read_file(folder_fd, "nothing")


def test_a_file_that_others_may_write_is_not_believed(tmp_path: Path, folder_fd: int) -> None:
    (tmp_path / "a").write_text("x")
    (tmp_path / "a").chmod(0o666)
    with pytest.raises(TrustError, match="others may write"):
        read_file(folder_fd, "a")


@as_root
def test_a_file_of_another_user_is_not_believed(tmp_path: Path, folder_fd: int) -> None:
    (tmp_path / "a").write_text("x")
    os.chown(tmp_path / "a", OTHER, -1)
    with pytest.raises(TrustError, match=f"user id {OTHER}"):
        read_trusted(tmp_path / "a")
    with pytest.raises(TrustError, match=f"user id {OTHER}"):
        open_own(folder_fd, "a", os.O_RDWR)


def test_a_file_that_is_too_large_is_none_of_ours(tmp_path: Path, folder_fd: int) -> None:
    (tmp_path / "a").write_bytes(b"x" * 11)
    with pytest.raises(TrustError, match="more than 10 bytes"):
        read_file(folder_fd, "a", 10)


def test_a_file_behind_links_of_ones_own_is_found_and_behind_a_strangers_is_not(
    tmp_path: Path, sticky: Path
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").touch()
    (tmp_path / "one").symlink_to("real")
    (tmp_path / "two").symlink_to(tmp_path / "one" / "file")
    assert behind_links(tmp_path / "two") == tmp_path / "one" / "file"
    assert behind_links(tmp_path / "real" / "file") == tmp_path / "real" / "file"
    (sticky / "link").symlink_to(tmp_path / "real" / "file")
    with pytest.raises(TrustError, match="is a link"):
        behind_links(sticky / "link")
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(OSError, match="symbolic links"):
        behind_links(tmp_path / "circle")
    with pytest.raises(FileNotFoundError):
        behind_links(tmp_path / "nothing")
