"""Where a result cannot be written is known before there is one."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from foundation.errors import OutputError
from foundation.files import refuse_unwritable, refuse_unwritable_folder

_NOBODY = 65534


@pytest.fixture
def shown() -> Iterator[Path]:
    """Yield a folder that every user can reach, and nobody but us can write to."""
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
