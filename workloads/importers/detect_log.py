"""Any log that a trace can be made of, recognised by how it begins: SWF, sacct's text and JSON, jobcomp."""

from __future__ import annotations

import io
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import tzinfo
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO, TypeVar

from foundation.errors import InputError
from workloads.importers.assemble_trace import ImportOptions, assemble
from workloads.importers.sacct_logs import ADVICE, delimiter_of, lacks_heading, read_delimited, read_json
from workloads.importers.slurm_words import (
    AccountingJob,
    AccountingLog,
    LocalClock,
    count,
    is_absent,
    known_text,
    length_s,
    resources,
    state_word,
)
from workloads.swf import SwfColumns, SwfTrace, load_columns, read_swf, write_swf
from workloads.swf.swf_job import STREAM_FAULTS, open_trace, stream_fault, unpacked
from workloads.swf.swf_reader import NoSwfError

# A value may hold blanks and equals signs, so only the keys that Slurm writes part a line. Names and work
# directories are the users': where a key occurs twice, it is unknown which of the two Slurm wrote.
_KEY = re.compile(
    r"(?:^|(?<= ))(JobId|UserId|GroupId|Name|JobState|Partition|TimeLimit|StartTime|EndTime|NodeList|NodeCnt|"
    r"ProcCnt|WorkDir|ReservationName|Tres|Gres|Account|QOS|WcKey|Cluster|SubmitTime|EligibleTime|ArrayJobId|"
    r"ArrayTaskId|HetJobId|HetJobOffset|PackJobId|PackJobOffset|DerivedExitCode|ExitCode)="
)
_USER = re.compile(r"(.*)\((\d+)\)")


def read_completions(path: Path, lines: Iterable[str], zone: tzinfo | None, strict: bool) -> AccountingLog:
    """Read a job completion log.

    Raises
    ------
    InputError
        A line is malformed (``strict``); the message names file and line.
    """
    log, clock = AccountingLog("jobcomp"), LocalClock(zone)
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        keys = _KEY.findall(line)
        if len(set(keys)) < len(keys):
            log.omitted.count("a key of Slurm's in a user's words", f"{path}:{number}: a key occurs twice")
            continue
        try:
            log.jobs.append(_job(line, clock))
        except (ValueError, KeyError) as error:
            message = f"{path}:{number}: no completed job in it: cannot make sense of {error}"
            log.omitted.refuse("malformed line", message, strict=strict)
    return log


def _job(line: str, clock: LocalClock) -> AccountingJob:
    parts = _KEY.split(line.rstrip("\r\n"))
    values = {key: value.strip() for key, value in zip(parts[1::2], parts[2::2], strict=True)}
    user = _USER.fullmatch(values.get("UserId", ""))
    tres = resources(values.get("Tres", ""))
    procs = count(values["ProcCnt"] if "ProcCnt" in values else tres["cpu"])
    (submit_s, start_s, end_s), sure = clock.read(
        values["SubmitTime"], values["StartTime"], values["EndTime"], None
    )
    nodes, of = values.get("NodeList"), values.get("HetJobId") or values.get("PackJobId")
    offset = values.get("HetJobOffset") or values.get("PackJobOffset")
    return AccountingJob(
        job_id=f"{of}+{offset}" if of and offset and not is_absent(offset) else values["JobId"],
        raw_id=count(values["JobId"]),
        state=state_word(values.get("JobState", "")),
        submit_s=submit_s,
        start_s=start_s,
        end_s=end_s,
        procs=procs,
        nodes=count(values.get("NodeCnt", "")),
        requested_s=length_s(values.get("TimeLimit", ""), 60),
        user=user[1] if user else known_text(values.get("UserId")),
        account=known_text(values.get("Account")) or known_text(values.get("GroupId")),
        partition=known_text(values.get("Partition")),
        qos=known_text(values.get("QOS")),
        name=known_text(values.get("Name")),
        had_nodes=None if nodes is None else not is_absent(nodes),
        sure=sure,
    )


_Trace = TypeVar("_Trace", SwfTrace, SwfColumns)
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
    if first.startswith("JobId=") and "UserId=" in first:
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
    found = read_accounting(path, options.zone, strict)
    if found is None:
        return _read_swf(read_swf, path, strict), LogKind.SWF
    log, kind = found
    return assemble(log, options), kind


def read_accounting(
    path: Path, zone: tzinfo | None, strict: bool = True
) -> tuple[AccountingLog, LogKind] | None:
    """Read ``path`` (see ``read_any``) with the names in it; None: it is SWF, or no file.

    Raises
    ------
    InputError
        The file cannot be read; with ``strict`` also where a line is malformed.
    """
    if path != STDIN and not path.is_file():
        # a pipe can be read but once, and is taken for SWF; what is missing or a folder is reported there,
        # too
        return None
    with _opened(path) as stream:
        kind = kind_of(path, _head(path, stream))
        if kind is LogKind.SWF:
            if path == STDIN:
                raise InputError("standard input is no accounting log: give an SWF trace as a file")
            return None
        text = io.TextIOWrapper(stream, encoding="utf-8", errors="replace", newline="")
        return _read(path, kind, text, zone, strict), kind


def load_any(path: Path, options: ImportOptions, strict: bool = True) -> SwfColumns:
    """Read ``path`` as ``read_any`` does, by columns: SWF of a file at the fast reader's speed.

    Raises
    ------
    InputError, UsageError
        See ``read_any``.
    """
    if path != STDIN and path.is_file():
        with _opened(path) as stream:
            is_swf = kind_of(path, _head(path, stream)) is LogKind.SWF
        if is_swf:
            return _read_swf(load_columns, path, strict)
    trace, _ = read_any(path, options, strict)
    with tempfile.TemporaryDirectory(prefix="osub-log-") as folder:
        file = Path(folder) / f"{trace.name}.swf"
        write_swf(file, trace)
        return replace(load_columns(file), report=trace.report)


def _head(path: Path, stream: io.BufferedReader) -> str:
    try:
        return stream.peek(PEEK_BYTES)[:PEEK_BYTES].decode("utf-8", errors="replace")
    except STREAM_FAULTS as error:
        raise stream_fault(path, error, readable=False) from error


def _read_swf(read: Callable[[Path, bool], _Trace], path: Path, strict: bool) -> _Trace:
    """Read SWF, which a file is taken for that is nothing else; the error names what else it could be."""
    try:
        return read(path, strict)
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
        log.omitted.count("damaged end of file", fault)
    return log


@contextmanager
def _opened(path: Path) -> Iterator[io.BufferedReader]:
    if path != STDIN:
        with open_trace(path) as stream:
            yield stream
        return
    source: BinaryIO = sys.stdin.buffer
    yield unpacked(path, io.BufferedReader(io.BytesIO(source.read())))
