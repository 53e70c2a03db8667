"""Writing a file whole or not at all, at the place that a user named."""

from __future__ import annotations

import contextlib
import gzip
import os
import secrets
from collections.abc import Iterable
from pathlib import Path

from foundation.errors import OutputError


def write_whole(path: Path, text: str, mode: int = 0o644) -> None:
    """Make ``path`` hold ``text``: a reader sees the old file or the whole new one.

    In a folder to which others may write, too, nobody knows the name of the draft before, and no link of
    theirs is followed. What is no plain file, such as ``/dev/null``, is written to and never replaced.

    Raises
    ------
    OutputError
        The file cannot be written; what was there before stays.
    """
    try:
        if path.exists() and not path.is_file():
            with path.open("w", encoding="utf-8") as device:
                device.write(text)
            return
        draft = path.with_name(f".{path.name}.{secrets.token_hex(6)}.partial")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            draft.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                draft.unlink()
            raise
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}") from error


def write_pieces(path: Path, pieces: Iterable[bytes]) -> None:
    """Make ``path`` hold the pieces one after another, of which only one is in memory, all or nothing.

    A name that ends in ``.gz`` gives gzip without name and time: the same pieces, the same bytes. An error of
    whoever makes the pieces leaves what was there before.

    Raises
    ------
    OutputError
        The file cannot be written, or is no plain file.
    """
    if path.exists() and not path.is_file():
        raise OutputError(f"cannot write {path}: it is not a regular file; give the name of a file")
    draft = path.with_name(f".{path.name}.{secrets.token_hex(6)}.partial")
    try:
        with draft.open("xb") as stream:
            if path.suffix == ".gz":
                with gzip.GzipFile(filename="", mode="wb", fileobj=stream, mtime=0) as packed:
                    packed.writelines(pieces)
            else:
                stream.writelines(pieces)
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(path)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}") from error
    finally:
        draft.unlink(missing_ok=True)
