"""The trace in a RUN: ``trace.swf.gz``, reproducible bytes, with the SHA-256 of its text."""

from __future__ import annotations

import gzip
import hashlib
import shutil
import zlib
from pathlib import Path
from typing import IO, cast

from foundation.errors import InputError
from foundation.records.journal import output_error

TRACE_NAME = "trace.swf.gz"
_CHUNK_BYTES = 2**20
_GZIP_MAGIC = b"\x1f\x8b"
_COMPRESSION = 4


def copy_trace(trace: Path, folder: Path) -> str:
    """Copy ``trace`` (plain or gzip) to ``folder/trace.swf.gz`` and return the SHA-256 of its text.

    A compressed trace is copied byte for byte; a plain one is compressed without a name or a time stamp.
    Either way the same input gives the same bytes.

    Raises
    ------
    InputError
        The trace cannot be read or is damaged.
    OutputError
        The copy cannot be written.
    """
    digest = trace_sha256(trace)
    target = folder / TRACE_NAME
    try:
        if _is_gzip(trace):
            shutil.copyfile(trace, target)
        else:
            with (
                trace.open("rb") as source,
                target.open("wb") as raw,
                gzip.GzipFile("", "wb", _COMPRESSION, raw, mtime=0) as packed,
            ):
                shutil.copyfileobj(source, cast("IO[bytes]", packed), _CHUNK_BYTES)
    except OSError as error:
        raise output_error("write", target, error) from error
    return digest


def trace_sha256(trace: Path) -> str:
    """Return the SHA-256 of a trace's text, whether the file is plain or gzip.

    Raises
    ------
    InputError
        The trace cannot be read or is damaged.
    """
    digest = hashlib.sha256()
    try:
        with gzip.open(trace, "rb") if _is_gzip(trace) else trace.open("rb") as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                digest.update(chunk)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(
            f"trace {trace} is a damaged gzip file ({error}), which no RUN can keep: "
            "`osub trace convert --lenient` makes a sound one of it"
        ) from error
    except OSError as error:
        raise InputError(f"cannot read trace {trace}: {error.strerror or error}") from error
    return digest.hexdigest()


def _is_gzip(trace: Path) -> bool:
    with trace.open("rb") as stream:
        return stream.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
