"""Writing an SWF file: all of it or nothing, and the same bytes every time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path

from foundation.whole_file import write_pieces
from workloads.swf.swf_header import SwfHeader
from workloads.swf.swf_job import SwfJob
from workloads.swf.swf_trace import SwfTrace


def swf_lines(header: SwfHeader, jobs: Iterable[SwfJob]) -> Iterator[bytes]:
    """Yield the lines of a file: comments at their places, jobs as they were read or else in plain form.

    A job or comment that ended its file without a line end gets one where another line follows.
    """
    previous = b""
    for line in _lines_in_place(header, jobs):
        if previous:
            yield previous if previous.endswith(b"\n") else previous + b"\n"
        previous = line
    yield previous


def _lines_in_place(header: SwfHeader, jobs: Iterable[SwfJob]) -> Iterator[bytes]:
    waiting = deque(sorted(header.comments, key=lambda comment: comment.after_jobs))
    for count, job in enumerate(jobs):
        while waiting and waiting[0].after_jobs <= count:
            yield waiting.popleft().raw
        yield job.line()
    for comment in waiting:
        yield comment.raw


def write_swf(path: Path, trace: SwfTrace, packed: bool | None = None) -> None:
    """Write ``trace`` to ``path``, which then has all of it or, after an error, what it had before.

    Parameters
    ----------
    path
        The file; replaced where it exists.
    trace
        Header and jobs. A job that was read and not changed since is written as the very bytes read.
    packed
        Whether to write gzip (without name and time: the same trace gives the same bytes); by
        default, whether the name ends in ``.gz``.

    Raises
    ------
    OutputError
        The folder is missing or not writable, ``path`` is a folder or a device, or the disk is full.
    """
    write_pieces(path, swf_lines(trace.header, trace.jobs), packed=packed)
