"""Any log that a trace can be made of, told apart by how it begins: SWF, sacct's text and JSON, jobcomp."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import tzinfo
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO

from foundation.errors import InputError
from workloads.importers.accounting_record import AccountingLog
from workloads.importers.assemble_trace import ImportOptions, assemble
from workloads.importers.jobcomp import is_completion_line, read_completions
from workloads.importers.sacct_logs import ADVICE, delimiter_of, lacks_heading, read_delimited, read_json
from workloads.swf import SwfTrace, read_swf
from workloads.swf.swf_reader import NoSwfError
from workloads.swf.trace_bytes import STREAM_FAULTS, open_trace, stream_fault, unpacked

PEEK_BYTES = 1 << 16
STDIN = Path("-")


class LogKind(StrEnum):
    """What a file is."""

    SWF = "swf"
    SACCT = "sacct"
    SACCT_JSON = "sacct-json"
    JOBCOMP = "jobcomp"


def kind_of(path: Path, head: str) -> LogKind:
    """Return what a file that begins with ``head`` is.

    Raises
    ------
    InputError
        It is accounting without the needed columns.
    """
    lines = [line for line in head.splitlines() if line.strip()]
    first = lines[0] if lines else ""
    if first.lstrip().startswith("{"):
        return LogKind.SACCT_JSON
    if is_completion_line(first):
        return LogKind.JOBCOMP
    if delimiter_of(first) is not None:
        return LogKind.SACCT
    if "jobid" in first.lower():
        raise InputError(
            f"{path} looks like accounting, but its first line has no columns JobID and Submit with | "
            f"between them: make it with `{ADVICE}`"
        )
    if lacks_heading(first):
        raise InputError(
            f"{path} looks like accounting without a heading: make it without --noheader, with `{ADVICE}`"
        )
    return LogKind.SWF


def read_any(path: Path, options: ImportOptions, strict: bool = True) -> tuple[SwfTrace, LogKind]:
    """Read ``path`` (plain or gzip; ``-`` is standard input) as what it is; return the trace and its kind.

    Raises
    ------
    InputError
        The file cannot be read or has no job that ran; with ``strict`` also where a line is malformed.
    UsageError
        The options are malformed.
    """
    if path != STDIN and not path.is_file():
        # a pipe can be read but once, and is taken for SWF; what is missing or a folder is told there, too
        return _read_swf(path, strict), LogKind.SWF
    with _opened(path) as stream:
        try:
            head = stream.peek(PEEK_BYTES)[:PEEK_BYTES].decode("utf-8", errors="replace")
        except STREAM_FAULTS as error:
            raise stream_fault(path, error, readable=False) from error
        kind = kind_of(path, head)
        if kind is LogKind.SWF:
            if path == STDIN:
                raise InputError("standard input is no accounting log: give an SWF trace as a file")
            return _read_swf(path, strict), kind
        text = io.TextIOWrapper(stream, encoding="utf-8", errors="replace", newline="")
        log = _read(path, kind, text, options.zone, strict)
    return assemble(log, options), kind


def _read_swf(path: Path, strict: bool) -> SwfTrace:
    """Read SWF, which a file is taken for that is nothing else; the error names what else it could be."""
    try:
        return read_swf(path, strict)
    except NoSwfError as error:
        raise InputError(
            f"{error.detail}; is it SWF? Then --lenient passes over malformed lines; accounting comes "
            f"from `{ADVICE}`"
        ) from error


def _read(
    path: Path, kind: LogKind, text: io.TextIOWrapper, zone: tzinfo | None, strict: bool
) -> AccountingLog:
    if kind is LogKind.SACCT_JSON:
        try:
            return read_json(path, text.read(), strict)
        except STREAM_FAULTS as error:
            raise stream_fault(path, error, readable=False) from error
    faults: list[str] = []

    def lines() -> Iterator[str]:
        try:
            yield from text
        except STREAM_FAULTS as error:
            fault = stream_fault(path, error)
            if strict:
                raise fault from error
            faults.append(str(fault))

    read = read_completions if kind is LogKind.JOBCOMP else read_delimited
    log = read(path, lines(), zone, strict)
    for fault in faults:
        log.skip("damaged end of file", fault)
    return log


@contextmanager
def _opened(path: Path) -> Iterator[io.BufferedReader]:
    if path != STDIN:
        with open_trace(path) as stream:
            yield stream
        return
    source: BinaryIO = sys.stdin.buffer
    yield unpacked(path, io.BufferedReader(io.BytesIO(source.read())))
