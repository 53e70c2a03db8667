"""Logs of the Parallel Workloads Archive in a cache of this user, checked."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Protocol
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from foundation.errors import HostError, InputError, OutputError
from foundation.units import counted
from foundation.version import VERSION
from foundation.whole_file import draft_at
from workloads.importers.archive_logs import ARCHIVE, ArchiveLog
from workloads.swf import load_columns
from workloads.swf.trace_bytes import STREAM_FAULTS, open_trace, stream_fault

TIMEOUT_S = 30.0
PIECE_BYTES = 1 << 16


class Body(Protocol):
    """What an address answers with."""

    def read(self, size: int, /) -> bytes:
        """Return up to ``size`` bytes, none at the end."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The answer's headers."""


Opener = Callable[[str], AbstractContextManager[Body]]
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Fetched:
    """A log in the cache.

    Parameters
    ----------
    path
        Of the file.
    downloaded
        Whether it was downloaded now; otherwise it was there already.
    jobs
        Job lines in it.
    checked
        What was compared: ``sha256``, ``job count``, or ``header only``.
    acknowledge
        Whom to thank where results are published.
    """

    path: Path
    downloaded: bool
    jobs: int
    checked: str
    acknowledge: tuple[str, ...]


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Return where logs are kept: ``osub/traces`` in XDG_CACHE_HOME, else in ``~/.cache``."""
    base = environment.get("XDG_CACHE_HOME", "")
    # the XDG specification: a relative path is to be ignored
    root = Path(base) if base.startswith("/") else Path(environment.get("HOME", "/")) / ".cache"
    return root / "osub" / "traces"


def open_address(address: str) -> AbstractContextManager[Body]:
    """Ask for ``address`` (http or https only)."""
    if not address.startswith(("https://", "http://")):
        raise HostError(f"{address} is no web address: the archive's begins with https://")
    request = Request(address, headers={"User-Agent": f"osub/{VERSION}"})  # noqa: S310 - checked above
    opened: AbstractContextManager[Body] = urlopen(request, timeout=TIMEOUT_S)  # noqa: S310 - checked above
    return opened


def fetch_log(
    log: ArchiveLog,
    cache: Path,
    archive: str = ARCHIVE,
    opener: Opener = open_address,
    progress: Progress = lambda _done, _total: None,
) -> Fetched:
    """Return ``log`` from ``cache``, downloaded where it is not there yet, and checked in either case.

    Raises
    ------
    HostError
        The archive cannot be reached; the message says what to download from which page, and where to put it.
    InputError
        The file is damaged or another one than it should be.
    OutputError
        The cache cannot be written.
    """
    path = cache / log.file
    if path.exists():
        return _checked(log, path, downloaded=False)
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot make the cache {cache}: {error.strerror}; give --cache") from error
    try:
        with draft_at(path) as draft:
            try:
                _download(log.address(archive), draft, opener, progress)
            except (URLError, HTTPException, TimeoutError, ConnectionError) as error:
                raise HostError(_advice(log, path, archive, error)) from error
            fetched = _checked(log, draft, downloaded=True, shown=log.address(archive))
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error
    return Fetched(path, fetched.downloaded, fetched.jobs, fetched.checked, fetched.acknowledge)


def _advice(log: ArchiveLog, path: Path, archive: str, error: Exception) -> str:
    if isinstance(error, HTTPError):
        why = f"the archive answers {error.code} {error.reason}"
    else:
        reason = getattr(error, "reason", None) or str(error) or type(error).__name__
        why = f"the archive cannot be reached ({reason})"
    return (
        f"{why}: download {log.file} from {log.page(archive)} on another host and put it to {path}; "
        f"`osub trace fetch {log.name}` checks it then"
    )


def _download(address: str, target: Path, opener: Opener, progress: Progress) -> None:
    with opener(address) as body, target.open("xb") as stream:
        announced = body.headers.get("Content-Length") or ""
        total = int(announced) if announced.isdigit() else 0
        done = 0
        while piece := body.read(PIECE_BYTES):
            stream.write(piece)
            done += len(piece)
            progress(done, max(total, done))
    if total and done < total:
        raise URLError(f"it ended after {done:,} of {total:,} bytes")


def _checked(log: ArchiveLog, path: Path, downloaded: bool, shown: str | None = None) -> Fetched:
    """Return what ``path`` holds if it is ``log``."""
    where = shown or str(path)
    again = "" if shown else "; delete it and fetch it again"
    try:
        digest = _sha256(path)
        columns = load_columns(path, strict=False)
    except InputError as error:
        raise InputError(f"{str(error).replace(str(path), where)}{again}") from error
    jobs = columns.report.jobs
    if columns.report.skipped and log.sha256 is None:
        # the archive's own files have no malformed lines; a page that asks to log in has nothing else
        raise InputError(f"{where} is no sound SWF file: {columns.report.examples[0]}{again}")
    if log.sha256 is not None and digest != log.sha256:
        raise InputError(
            f"{where} is not the {log.name} that is known: {counted(jobs, 'job')}, sha256 {digest} unpacked, "
            f"not {log.sha256}{again}"
        )
    if log.sha256 is not None:
        checked = "sha256"
    else:
        announced = columns.header.max_records
        checked = "job count" if announced in (jobs, jobs + columns.report.joined) else "header only"
    return Fetched(path, downloaded, jobs, checked, columns.header.acknowledge)


def _sha256(path: Path) -> str:
    """Return the digest of the unpacked file."""
    digest = hashlib.sha256()
    with open_trace(path) as stream:
        try:
            while piece := stream.read(PIECE_BYTES):
                digest.update(piece)
        except STREAM_FAULTS as error:
            raise stream_fault(path, error) from error
    return digest.hexdigest()
