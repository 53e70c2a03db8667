from __future__ import annotations

import gzip
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from foundation.errors import OutputError
from foundation.files import draft_at, draft_in, write_in, write_pieces, write_whole
from foundation.trust import open_folder

Writer = Callable[[Path, bytes], None]


def by_draft_in(path: Path, content: bytes) -> None:
    folder = open_folder(path.parent)
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
    folder = open_folder(path.parent)
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
    fd = open_folder(folder)
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
    folder = open_folder(tmp_path)
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
