"""The peak memory of a job, predicted from peaks of its user's earlier jobs.

A prediction is an order statistic of what the same user's jobs had that are most like the job: the same
application and request, else the same request, else any. Of n peaks the one of rank ceil((n + 1) x coverage)
covers the next one with that probability where jobs of a group follow no order in time. Source: V. Vovk,
A. Gammerman, G. Shafer, Algorithmic Learning in a Random World, 2005, sections 2.2 and 4.5 (conformal
prediction by groups). Peaks of one user say nothing of another's jobs, so no user can spoil another's entry.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from analysis.quantiles import quantiles
from foundation.errors import InputError, UsageError
from foundation.records import TRACE_NAME
from workloads.importers.detect_log import read_accounting
from workloads.importers.slurm_words import AccountingJob
from workloads.swf import load_columns, numbers_of

if TYPE_CHECKING:
    import polars as pl

Floats = npt.NDArray[np.float64]
COVERAGE = 0.95
_LEAST_COVERAGE, _MOST_COVERAGE = 0.5, 0.999
_KIB_PER_MIB = 1024
_DRAWS = 1000
_Key = tuple[str, str | None, int | None]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class MemoryLog:
    """Jobs with what they asked for and what they used, as columns of one length.

    Parameters
    ----------
    user, app
        Names, or the numbers of an SWF trace (fields 12 and 14) as texts; empty where not known.
    submit_s, end_s
        When it came and ended; a job's peak is known from its end on.
    procs
        Its processors.
    requested_kib, used_kib
        Memory a processor, NaN where not known.
    """

    user: Sequence[str]
    app: Sequence[str]
    submit_s: Floats
    end_s: Floats
    procs: Floats
    requested_kib: Floats
    used_kib: Floats

    @property
    def measured(self) -> npt.NDArray[np.bool_]:
        """Which jobs' peaks are known, and whose they are."""
        known = np.array([user != "" for user in self.user], dtype=np.bool_)
        found: npt.NDArray[np.bool_] = known & (self.used_kib > 0)
        return found

    def keys(self, job: int) -> tuple[_Key, _Key, _Key]:
        """Return the groups of a job, the narrowest first."""
        asked = self.requested_kib[job]
        mib = None if math.isnan(asked) else math.ceil(asked / _KIB_PER_MIB)
        user, app = self.user[job], self.app[job]
        return (user, app, mib), (user, None, mib), (user, None, None)


def log_of_frame(frame: pl.DataFrame) -> MemoryLog:
    """Return the jobs of an SWF trace, from a frame as that of ``SwfColumns``."""
    submit_s = numbers_of(frame, "submit_s", 0.0)
    return MemoryLog(
        user=frame["user"].cast(str).fill_null("").to_list(),
        app=frame["executable"].cast(str).fill_null("").to_list(),
        submit_s=submit_s,
        end_s=submit_s + numbers_of(frame, "wait_s", 0.0) + numbers_of(frame, "run_s", 0.0),
        procs=np.maximum(numbers_of(frame, "allocated_procs", 1.0), 1.0),
        requested_kib=numbers_of(frame, "requested_memory_kib"),
        used_kib=numbers_of(frame, "used_memory_kib"),
    )


def read_memory_log(
    path: Path,
    zone: tzinfo | None = None,
    *,
    strict: bool = True,
    peaks: Mapping[tuple[int, int], float] | None = None,
) -> MemoryLog:
    """Read a log of any kind, or the trace of a RUN.

    Parameters
    ----------
    peaks
        Peaks (KiB) by Slurm's job id and start (seconds since the epoch), of jobs of which an accounting log
        has none.

    Raises
    ------
    InputError
        It cannot be read, or no job in it has a measured peak.
    """
    path = path / TRACE_NAME if (path / TRACE_NAME).is_file() else path
    accounting = read_accounting(path, zone, strict)
    if accounting is None:
        log = log_of_frame(load_columns(path, strict=strict).frame)
    else:
        jobs = [
            job
            for job in accounting[0].jobs
            if job.end_s is not None and job.submit_s is not None and job.procs
        ]
        # a job that was killed for its memory needed more than it could have
        others = {} if peaks is None else peaks
        used = [
            max(
                job.used_memory_kib or others.get(_run_of(job), 0.0),
                (job.requested_memory_kib or 0.0) * (job.state == "OUT_OF_MEMORY"),
            )
            for job in jobs
        ]
        procs = np.array([job.procs for job in jobs], dtype=np.float64)
        asked = [job.requested_memory_kib or math.nan for job in jobs]
        log = MemoryLog(
            user=[job.user or "" for job in jobs],
            app=[job.name or "" for job in jobs],
            submit_s=np.array([job.submit_s for job in jobs], dtype=np.float64),
            end_s=np.array([job.end_s for job in jobs], dtype=np.float64),
            procs=procs,
            requested_kib=np.array(asked, dtype=np.float64)
            / np.array([job.requested_procs or job.procs for job in jobs], dtype=np.float64),
            used_kib=np.array(used, dtype=np.float64) / procs,
        )
    if not log.measured.any():
        raise InputError(
            f"{path}: no job has a measured memory peak: it needs sacct's MaxRSS and NTasks (of steps), or "
            "field 7 of SWF"
        )
    return log


def _run_of(job: AccountingJob) -> tuple[int, int]:
    number = int(job.job_id) if job.raw_id is None and job.job_id.isdecimal() else job.raw_id
    return number or 0, round(job.start_s or 0)


class _Group:
    """The last peaks of a group, in order of time and of size."""

    __slots__ = ("last", "ordered")

    def __init__(self) -> None:
        self.last: deque[float] = deque()
        self.ordered: list[float] = []

    def add(self, kib: float, most: int) -> None:
        self.last.append(kib)
        insort(self.ordered, kib)
        if len(self.last) > most:
            del self.ordered[bisect_left(self.ordered, self.last.popleft())]


class PeakHistory:
    """The peaks of jobs that have ended, by group.

    Parameters
    ----------
    coverage
        Share of jobs whose peak is to be at most what is predicted, 0.5 to 0.999.

    Raises
    ------
    UsageError
        The coverage is another.
    """

    def __init__(self, coverage: float = COVERAGE) -> None:
        if not _LEAST_COVERAGE <= coverage <= _MOST_COVERAGE:
            raise UsageError(
                f"a coverage of {coverage:g} is not possible: choose {_LEAST_COVERAGE:g} to "
                f"{_MOST_COVERAGE:g}"
            )
        self.coverage = coverage
        self.least = math.ceil(coverage / (1 - coverage) - 1e-9)
        """Peaks of which the largest covers the next one so often."""
        self._most = math.ceil(5 / (1 - coverage) - 1e-9)
        self._groups: dict[_Key, _Group] = {}

    def add(self, keys: Sequence[_Key], kib: float) -> None:
        """Take the peak of a job that has ended."""
        for key in dict.fromkeys(keys):
            self._groups.setdefault(key, _Group()).add(kib, self._most)

    def predict(self, keys: Sequence[_Key], requested_kib: float) -> float | None:
        """Return the peak a processor of a job; None: there is too little history.

        It is never below the largest peak of the narrowest group, and never above the request unless that
        group exceeded it.
        """
        own = self._groups.get(keys[0])
        proven_kib = 0.0 if own is None else own.ordered[-1]
        found = next((kib for key in keys if (kib := self._quantile(key)) is not None), None)
        if found is None:
            return None
        most_kib = math.inf if math.isnan(requested_kib) else max(requested_kib, proven_kib)
        return min(max(found, proven_kib), most_kib)

    def _quantile(self, key: _Key) -> float | None:
        peaks = self._groups[key].ordered if key in self._groups else []
        if len(peaks) < self.least:
            return None
        return peaks[min(len(peaks), math.ceil((len(peaks) + 1) * self.coverage - 1e-9)) - 1]

    def rows(self) -> Iterator[tuple[_Key, float, int]]:
        """Return group, peak a processor and number of peaks, of the groups that a table needs.

        They are those with enough peaks, and those of an application whose largest peak is above what its
        user's jobs of the same request, or all, have.
        """
        for key, group in self._groups.items():
            user, app, mib = key
            wider = ((user, None, mib), (user, None, None))
            quantile = self._quantile(key)
            requested_kib = math.nan if mib is None else float(mib * _KIB_PER_MIB)
            found = quantile if app is None else self.predict((key, *wider), requested_kib)
            above = next((kib for one in wider if (kib := self._quantile(one)) is not None), None)
            if found is not None and (quantile is not None or above is None or found > above):
                most_kib = requested_kib if app is None and mib is not None else math.inf
                yield key, min(found, most_kib), len(group.ordered)


def _instants(log: MemoryLog) -> Iterator[tuple[int, bool]]:
    """Yield jobs in order of time: as they end with a known peak (True), and as they are submitted."""
    ended = np.flatnonzero(log.measured)
    jobs = np.concatenate((ended, np.arange(len(log.user))))
    order = np.argsort(np.concatenate((log.end_s[ended], log.submit_s)), kind="stable")
    yield from zip(jobs[order].tolist(), (order < len(ended)).tolist(), strict=True)


def replayed(log: MemoryLog, coverage: float = COVERAGE) -> tuple[Floats, PeakHistory]:
    """Return what was predicted of each job when it was submitted (NaN: nothing), and the history after all.

    Only peaks of jobs that had ended by then count.
    """
    history = PeakHistory(coverage)
    found = np.full(len(log.user), math.nan)
    for job, has_ended in _instants(log):
        if has_ended:
            history.add(log.keys(job), float(log.used_kib[job]))
        elif (kib := history.predict(log.keys(job), float(log.requested_kib[job]))) is not None:
            found[job] = kib
    return found, history


def twice_the_last(log: MemoryLog) -> Floats:
    """Return twice the last known peak of each job's user when it was submitted; NaN: there is none."""
    last: dict[str, float] = {}
    found = np.full(len(log.user), math.nan)
    for job, has_ended in _instants(log):
        if has_ended:
            last[log.user[job]] = float(log.used_kib[job])
        else:
            found[job] = 2 * last.get(log.user[job], math.nan)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryScore:
    """How good predictions were on the later half of the jobs.

    Parameters
    ----------
    jobs, predicted
        How many there were, and how many had a prediction; the figures are of these.
    coverage, low, high
        Share of peaks that were at most as predicted, with its 95% interval over users (bootstrap).
    pinball_mib
        Mean pinball loss at the coverage aimed at, in MiB a processor; less is better.
    times_used
        What was predicted over what was used, all processors.
    """

    jobs: int
    predicted: int
    coverage: float | None = None
    low: float | None = None
    high: float | None = None
    pinball_mib: float | None = None
    times_used: float | None = None


def score(log: MemoryLog, kib: Floats, coverage: float = COVERAGE, seed: int = 0) -> MemoryScore:
    """Judge predictions on the jobs that were submitted in the later half of the log."""
    later = log.measured & (log.submit_s >= np.median(log.submit_s[log.measured]))
    chosen = np.flatnonzero(later & ~np.isnan(kib))
    if not len(chosen):
        return MemoryScore(jobs=int(later.sum()), predicted=0)
    used, given, procs = log.used_kib[chosen], kib[chosen], log.procs[chosen]
    covered = used <= given
    short = used - given
    names, who = np.unique([log.user[job] for job in chosen.tolist()], return_inverse=True)
    jobs, hits = np.bincount(who), np.bincount(who, covered)
    drawn = np.random.default_rng(seed).integers(len(names), size=(_DRAWS, len(names)))
    low, high = quantiles(hits[drawn].sum(1) / jobs[drawn].sum(1), (0.025, 0.975))
    pinball = np.where(short > 0, coverage * short, (coverage - 1) * short)
    return MemoryScore(
        jobs=int(later.sum()),
        predicted=len(chosen),
        coverage=float(covered.mean()),
        low=float(low),
        high=float(high),
        pinball_mib=float(pinball.mean()) / _KIB_PER_MIB,
        times_used=float((given * procs).sum() / (used * procs).sum()),
    )


def scores(log: MemoryLog, coverage: float = COVERAGE) -> tuple[dict[str, MemoryScore], PeakHistory]:
    """Return how good requests, twice the user's last peak and predictions were, and the history."""
    predicted, history = replayed(log, coverage)
    methods = {"requested": log.requested_kib, "twice the last": twice_the_last(log), "predicted": predicted}
    return {name: score(log, kib, coverage) for name, kib in methods.items()}, history


def table_of(history: PeakHistory) -> dict[str, Any]:
    """Return what is predicted for which group, for JSON; memory is MiB a processor, rounded up."""
    rows = [
        {"user": user, "app": app, "requested_mib": mib, "mib": math.ceil(kib / _KIB_PER_MIB), "jobs": jobs}
        for (user, app, mib), kib, jobs in history.rows()
    ]
    return {"format": "osub-memory-1", "coverage": history.coverage, "rows": rows}
