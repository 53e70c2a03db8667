"""Files: whole, writable, trusted."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from foundation import trust
from foundation.errors import OutputError, TrustError
from foundation.files import (
    draft_at,
    draft_in,
    refuse_unwritable,
    refuse_unwritable_folder,
    unpack,
    write_in,
    write_pieces,
    write_whole,
)

Writer = Callable[[Path, bytes], None]


def by_draft_in(path: Path, content: bytes) -> None:
    folder = trust.open_folder(path.parent)
    try:
        with draft_in(folder, path.name) as fd:
            os.write(fd, content)
    finally:
        os.close(folder)


def by_draft_at(path: Path, content: bytes) -> None:
    with draft_at(path) as draft:
        draft.write_bytes(content)


def by_known_draft(path: Path, content: bytes) -> None:
    with draft_at(path, draft=".known") as draft:
        draft.write_bytes(content)


def by_write_in(path: Path, content: bytes) -> None:
    folder = trust.open_folder(path.parent)
    try:
        write_in(folder, path.name, content)
    finally:
        os.close(folder)


def names_of(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


WRITERS: dict[str, Writer] = {
    "draft_in": by_draft_in,
    "draft_at": by_draft_at,
    "known draft": by_known_draft,
    "write_in": by_write_in,
    "write_whole": lambda path, content: write_whole(path, content.decode()),
    "write_pieces": lambda path, content: write_pieces(path, (content[:1], content[1:])),
}

EVERY = pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS.keys())


@EVERY
def test_a_file_is_replaced_and_no_draft_stays(tmp_path: Path, write: Writer) -> None:
    for content in (b"one", b"two and more", b"3"):
        write(tmp_path / "file", content)
        assert (tmp_path / "file").read_bytes() == content
    assert names_of(tmp_path) == ["file"]


@EVERY
def test_a_link_in_the_files_place_is_replaced_and_what_it_names_stays(tmp_path: Path, write: Writer) -> None:
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "file").symlink_to("precious")
    write(tmp_path / "file", b"one")
    assert (tmp_path / "precious").read_text() == "mine"
    assert not (tmp_path / "file").is_symlink()


@EVERY
def test_a_concurrent_reader_sees_the_old_file_or_the_new_one(tmp_path: Path, write: Writer) -> None:
    contents = [bytes([letter]) * 20_000 for letter in b"abc"]
    path, over, seen = tmp_path / "file", threading.Event(), set[bytes]()
    write(path, contents[0])

    def read() -> None:
        while not over.is_set():
            seen.add(path.read_bytes())

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for number in range(30):
            write(path, contents[number % 3])
    finally:
        over.set()
        reader.join()
    assert seen <= set(contents)


def failing() -> Iterator[bytes]:
    yield b"part"
    raise RuntimeError("no more")


def fail_in(folder: Path) -> None:
    fd = trust.open_folder(folder)
    try:
        with draft_in(fd, "file"):
            raise RuntimeError("no more")
    finally:
        os.close(fd)


def fail_at(folder: Path) -> None:
    with draft_at(folder / "file") as draft:
        draft.write_text("part")
        raise RuntimeError("no more")


@pytest.mark.parametrize("fail", [fail_in, fail_at, lambda folder: write_pieces(folder / "file", failing())])
def test_after_an_error_the_old_file_is_there_and_no_draft(
    tmp_path: Path, fail: Callable[[Path], None]
) -> None:
    (tmp_path / "file").write_text("old")
    with pytest.raises(RuntimeError):
        fail(tmp_path)
    assert (tmp_path / "file").read_text() == "old"
    assert names_of(tmp_path) == ["file"]


def test_a_draft_that_was_never_written_is_an_error_and_replaces_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    with pytest.raises(FileNotFoundError), draft_at(tmp_path / "file"):
        pass
    assert (tmp_path / "file").read_text() == "old"


@pytest.mark.parametrize("left", ["a torn draft", "a link"])
def test_what_has_a_known_drafts_name_is_replaced_and_not_followed(tmp_path: Path, left: str) -> None:
    (tmp_path / "precious").write_text("mine")
    for name in (".known", ".file.new"):
        if left == "a link":
            (tmp_path / name).symlink_to("precious")
        else:
            (tmp_path / name).write_text("torn")
    by_known_draft(tmp_path / "file", b"one")
    by_draft_in(tmp_path / "file", b"two")
    assert (tmp_path / "precious").read_text() == "mine"
    assert names_of(tmp_path) == ["file", "precious"]


def test_a_kill_leaves_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    script = (
        "import os, signal, sys; from pathlib import Path; from foundation.files import draft_at\n"
        "with draft_at(Path(sys.argv[1])) as draft:\n"
        "    draft.write_text('part'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "file")], check=False)
    assert (tmp_path / "file").read_text() == "old"


def test_rights_are_those_that_were_asked_for(tmp_path: Path) -> None:
    folder = trust.open_folder(tmp_path)
    old = os.umask(0o077)
    try:
        write_in(folder, "state", b"x", 0o644)
        write_whole(tmp_path / "page", "x", 0o644)
    finally:
        os.umask(old)
        os.close(folder)
    rights = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("state", "page")]
    assert rights == [0o644, 0o600], "a page that a user asks for follows his umask"


def test_pieces_are_packed_if_the_name_says_so_or_the_caller_does(tmp_path: Path) -> None:
    for name, packed in (("a.gz", None), ("b", True)):
        write_pieces(tmp_path / name, (b"one ", b"two"), packed=packed)
        assert gzip.decompress((tmp_path / name).read_bytes()) == b"one two"
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b").read_bytes()
    write_pieces(tmp_path / "c.gz", (b"plain",), packed=False)
    assert (tmp_path / "c.gz").read_bytes() == b"plain"


def test_a_device_is_written_to_or_refused_and_never_replaced(tmp_path: Path) -> None:
    write_whole(Path("/dev/null"), "x")
    with pytest.raises(OutputError, match="not a regular file"):
        write_pieces(Path("/dev/null"), (b"x",))
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    with pytest.raises(OutputError, match="cannot write"):
        write_whole(tmp_path / "missing" / "file", "x")


_NOBODY = 65534


@pytest.fixture
def shown() -> Iterator[Path]:
    """Yield a folder that every user can reach, and only we can write to."""
    path = Path(tempfile.mkdtemp(prefix="osub-writable-", dir="/tmp"))
    path.chmod(0o755)
    yield path
    for folder in path.iterdir():
        folder.chmod(0o755)
    shutil.rmtree(path)


@pytest.fixture
def as_a_plain_user() -> Iterator[None]:
    """Have the test be no root; `access` asks for the real user."""
    if os.getuid():
        yield
        return
    os.setreuid(_NOBODY, 0)
    yield
    os.setreuid(0, 0)


def test_what_can_be_made_is_free(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("old")
    for path in (tmp_path / "new", tmp_path / "there", tmp_path / "a" / "b" / "c", Path("/dev/null")):
        refuse_unwritable(path)
        assert path.exists() == (path.name in ("there", "null"))
    refuse_unwritable_folder(tmp_path)
    refuse_unwritable_folder(tmp_path / "a" / "b")
    assert not (tmp_path / "a").exists()


@pytest.mark.usefixtures("as_a_plain_user")
def test_a_folder_without_the_right_to_write_is_named(shown: Path) -> None:
    closed, open_ = shown / "closed", shown / "open"
    for folder, mode in ((closed, 0o555), (open_, 0o777)):
        (folder / "here").mkdir(parents=True)
        folder.chmod(mode)
    refuse_unwritable(open_ / "x")
    refuse_unwritable_folder(open_)
    for path in (closed / "x", closed / "a" / "b"):
        with pytest.raises(OutputError, match=f"cannot write {path}: {closed} may not be written to"):
            refuse_unwritable(path)
    with pytest.raises(OutputError, match=f"cannot write {closed}: {closed} may not"):
        refuse_unwritable_folder(closed)
    # A new RUN takes the place of an empty folder, so it is the folder above that counts.
    refuse_unwritable(open_ / "here")
    with pytest.raises(OutputError, match="may not be written to"):
        refuse_unwritable(closed / "here")


def test_what_is_no_folder_is_no_way(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name, why in (("file", "no folder"), ("link", "a link that leads nowhere")):
        with pytest.raises(OutputError, match=f"{name} is {why}"):
            refuse_unwritable(tmp_path / name / "x")
        with pytest.raises(OutputError, match=f"{name} is {why}"):
            refuse_unwritable_folder(tmp_path / name)


def test_links_lead_where_they_lead(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    refuse_unwritable(tmp_path / "link" / "x")
    refuse_unwritable_folder(tmp_path / "link")


OTHER = 61_234
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file to another user")


def opens(path: Path, *, own: bool = True) -> bool:
    os.close(trust.open_folder(path, own=own))
    return True


@pytest.fixture
def sticky(tmp_path: Path) -> Path:
    """A folder like ``/tmp``."""
    (folder := tmp_path / "sticky").mkdir()
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
    (inner := tmp_path / "open" / "inner").mkdir(parents=True)
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(TrustError, match=r"everybody who may write to .*open"):
        opens(inner)
    (tmp_path / "open").chmod(0o1777)
    assert opens(inner)


@as_root
@pytest.mark.parametrize("whose", ["a", "a/b", "a/b/c"])
def test_no_component_may_belong_to_another_user(tmp_path: Path, whose: str) -> None:
    (folder := tmp_path / "a" / "b" / "c").mkdir(parents=True)
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
    # In a sticky folder another user can have made a second name of a link of ours.
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
    fd, made = trust.make_folder(tmp_path / "a" / "b", 0o700)
    os.close(fd)
    assert made
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    fd, made = trust.make_folder(tmp_path / "a" / "b", 0o700)
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
    fd = trust.open_folder(tmp_path)
    yield fd
    os.close(fd)


def test_files_are_replaced_whole_with_the_mode_that_was_asked_for(tmp_path: Path, folder_fd: int) -> None:
    old = os.umask(0o077)
    try:
        write_in(folder_fd, "a", b"one", 0o644)
        write_in(folder_fd, "a", b"two", 0o640)
    finally:
        os.umask(old)
    assert trust.read_file(folder_fd, "a") == b"two"
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640
    assert trust.names_in(folder_fd) == ["a"]


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
            trust.read_file(folder_fd, name)
    for name in ("link", "pipe"):
        with pytest.raises(TrustError):
            trust.open_own(folder_fd, name, os.O_RDWR | os.O_CREAT)
    with pytest.raises(FileNotFoundError):
        trust.read_file(folder_fd, "nothing")


def test_a_file_that_others_may_write_is_not_believed(tmp_path: Path, folder_fd: int) -> None:
    (tmp_path / "a").write_text("x")
    (tmp_path / "a").chmod(0o666)
    with pytest.raises(TrustError, match="others may write"):
        trust.read_file(folder_fd, "a")


@as_root
def test_a_file_of_another_user_is_not_believed(tmp_path: Path, folder_fd: int) -> None:
    (tmp_path / "a").write_text("x")
    os.chown(tmp_path / "a", OTHER, -1)
    with pytest.raises(TrustError, match=f"user id {OTHER}"):
        trust.read_trusted(tmp_path / "a")
    with pytest.raises(TrustError, match=f"user id {OTHER}"):
        trust.open_own(folder_fd, "a", os.O_RDWR)


def test_a_file_that_is_too_large_is_none_of_ours(tmp_path: Path, folder_fd: int) -> None:
    (tmp_path / "a").write_bytes(b"x" * 11)
    with pytest.raises(TrustError, match="more than 10 bytes"):
        trust.read_file(folder_fd, "a", 10)


def test_a_file_behind_links_of_ones_own_is_found_and_behind_a_strangers_is_not(
    tmp_path: Path, sticky: Path
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").touch()
    (tmp_path / "one").symlink_to("real")
    (tmp_path / "two").symlink_to(tmp_path / "one" / "file")
    assert trust.behind_links(tmp_path / "two") == tmp_path / "one" / "file"
    assert trust.behind_links(tmp_path / "real" / "file") == tmp_path / "real" / "file"
    (sticky / "link").symlink_to(tmp_path / "real" / "file")
    with pytest.raises(TrustError, match="is a link"):
        trust.behind_links(sticky / "link")
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(OSError, match="symbolic links"):
        trust.behind_links(tmp_path / "circle")
    with pytest.raises(FileNotFoundError):
        trust.behind_links(tmp_path / "nothing")


def packed(*entries: tarfile.TarInfo) -> tarfile.TarFile:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for entry in entries:
            archive.addfile(entry, io.BytesIO(b"x" * entry.size))
    made.seek(0)
    return tarfile.open(fileobj=made, mode="r|")


def entry(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.size, made.mode = kind, size, 0o6777
    made.linkname = "/etc/passwd" if kind == tarfile.SYMTYPE else ""
    return made


@pytest.mark.parametrize(
    "has_filter",
    [
        True,
        pytest.param(False, marks=pytest.mark.filterwarnings("ignore:Python 3.14 will:DeprecationWarning")),
    ],
)
def test_an_archive_is_unpacked_with_or_without_pythons_filter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_filter: bool
) -> None:
    if has_filter and not hasattr(tarfile, "data_filter"):
        pytest.skip("this Python has no filter of archives")
    if not has_filter:
        monkeypatch.delattr(tarfile, "data_filter", raising=False)
    files = [entry("sub", tarfile.DIRTYPE), entry("sub/file", size=3)]
    unpack(packed(*files), tmp_path / "out")
    assert (tmp_path / "out" / "sub" / "file").read_text() == "xxx"
    assert (tmp_path / "out" / "sub" / "file").stat().st_mode & 0o6022 == 0
    for odd in (entry("../outside", size=3), entry("pipe", tarfile.FIFOTYPE)):
        with pytest.raises(tarfile.TarError):
            unpack(packed(odd), tmp_path / "other")
    assert not (tmp_path / "outside").exists()
    with suppress(tarfile.TarError):
        unpack(packed(entry("link", tarfile.SYMTYPE), entry("link/passwd", size=3)), tmp_path / "other")
    assert not (tmp_path / "other" / "link").is_symlink()
