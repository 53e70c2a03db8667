"""Logs of the Parallel Workloads Archive in a cache of this user, checked.

What the Parallel Workloads Archive has, and where.

The archive publishes no checksums. Those below are of the unpacked files that this project was tested with,
so that it does not matter how a copy was packed; of other files only what they hold is checked.
"""

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

from foundation.errors import HostError, InputError, OutputError, UsageError
from foundation.files import draft_at
from foundation.units import counted
from foundation.version import VERSION
from workloads.swf import load_columns
from workloads.swf.swf_job import STREAM_FAULTS, open_trace, stream_fault

ARCHIVE = "https://www.cs.huji.ac.il/labs/parallel/workload"


@dataclass(frozen=True, slots=True)
class ArchiveLog:
    """A log of the archive: its folder there, its file's name without ``.swf.gz``, and what is known of it.

    Parameters
    ----------
    folder, name
        Of the page and of the file on it.
    jobs
        Job lines in the file.
    sha256
        Of the unpacked file.
    """

    folder: str
    name: str
    jobs: int | None = None
    sha256: str | None = None

    @property
    def file(self) -> str:
        """The file's name."""
        return f"{self.name}.swf.gz"

    def page(self, archive: str = ARCHIVE) -> str:
        """Return the address of the page that describes the log."""
        return f"{archive}/{self.folder}/index.html"

    def address(self, archive: str = ARCHIVE) -> str:
        """Return the address of the file."""
        return f"{archive}/{self.folder}/{self.file}"


_GAIA = "e4587af1ae104f023b49b7f6adcd1c5c1d3be42551848f71962dd2c1d49a78c0"
_KTH = "fba36494c4e4257f72182e8b629ebb0bcb054b3b82851ef957445bd627adcc87"
_CURIE = "b732a04aea71e2f154c8feee580be549d0bba1462bc91ec581944cb3dd6d442d"

LOGS = (
    ArchiveLog("l_unilu_gaia", "UniLu-Gaia-2014-1", 51_987, _GAIA),
    ArchiveLog("l_unilu_gaia", "UniLu-Gaia-2014-2"),
    ArchiveLog("l_kth_sp2", "KTH-SP2-1996-2.1-cln", 28_476, _KTH),
    ArchiveLog("l_cea_curie", "CEA-Curie-2011-2.1-cln", 312_826, _CURIE),
    ArchiveLog("l_kit_fh2", "KIT-FH2-2016-1"),
    ArchiveLog("l_ctc_sp2", "CTC-SP2-1996-3.1-cln"),
    ArchiveLog("l_sdsc_sp2", "SDSC-SP2-1998-4.2-cln"),
    ArchiveLog("l_sdsc_blue", "SDSC-BLUE-2000-4.2-cln"),
    ArchiveLog("l_sdsc_ds", "SDSC-DS-2004-2.1-cln"),
    ArchiveLog("l_hpc2n", "HPC2N-2002-2.2-cln"),
    ArchiveLog("l_lanl_cm5", "LANL-CM5-1994-4.1-cln"),
    ArchiveLog("l_nasa_ipsc", "NASA-iPSC-1993-3.1-cln"),
    ArchiveLog("l_llnl_atlas", "LLNL-Atlas-2006-2.1-cln"),
    ArchiveLog("l_llnl_thunder", "LLNL-Thunder-2007-1.1-cln"),
    ArchiveLog("l_anl_int", "ANL-Intrepid-2009-1"),
    ArchiveLog("l_pik_iplex", "PIK-IPLEX-2009-1"),
    ArchiveLog("l_ricc", "RICC-2010-2"),
    ArchiveLog("l_metacentrum2", "METACENTRUM-2013-3"),
    ArchiveLog("l_ciemat_euler", "CIEMAT-Euler-2008-1"),
    ArchiveLog("l_lpc", "LPC-EGEE-2004-1.2-cln"),
)


def find_log(name: str) -> ArchiveLog:
    """Return the log of that name, an unambiguous part of one, or ``FOLDER/NAME`` of any other.

    Raises
    ------
    UsageError
        No log or several logs are meant.
    """
    wanted = name.removesuffix(".gz").removesuffix(".swf")
    folder, slash, rest = wanted.partition("/")
    if slash:
        if not (folder.isidentifier() and rest.replace("-", "").replace(".", "").replace("_", "").isalnum()):
            raise UsageError(f"{name!r} is no FOLDER/NAME of the archive, such as l_ricc/RICC-2010-2")
        return ArchiveLog(folder, rest)
    exact = [log for log in LOGS if log.name.lower() == wanted.lower()]
    found = exact or [log for log in LOGS if wanted and wanted.lower() in log.name.lower()]
    if len(found) != 1:
        meant = ", ".join(log.name for log in found or LOGS)
        kind = "several logs are named so" if found else "no log of the archive is known by this name"
        raise UsageError(f"{name!r}: {kind}; choose one of {meant}, or give FOLDER/NAME")
    return found[0]


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
