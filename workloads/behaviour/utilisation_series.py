"""CPU utilisation of jobs over time, and the CSV files it travels in."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from foundation.errors import InputError

SAMPLE_S = 5.0
"""Seconds between two samples (thesis section 6.2.2)."""
GAP_SAMPLES = 6
"""A gap longer than so many samples is a failed measurement, not a long sample."""

HEADING = ("job", "elapsed_s", "cpu_percent")
_TIME_COLUMNS = ("elapsed_s", "time_s", "seconds", "timestamp")
_PERCENT_COLUMNS = ("cpu_percent", "utilisation_percent", "utilization_percent")
_CORES_COLUMNS = ("cores", "utilisation", "utilization")
_JOB_COLUMNS = ("job", "job_id", "jobid")


@dataclass(frozen=True, slots=True)
class UtilisationSeries:
    """How busy a job was, sample by sample.

    Parameters
    ----------
    name
        Of the job.
    lengths_s
        Seconds that each sample covers.
    cores
        Cores in use on average during each: 1.0 is one core all of the time, 100 % in a tool's percent.
    """

    name: str
    lengths_s: tuple[float, ...]
    cores: tuple[float, ...]

    @property
    def total_s(self) -> float:
        """Seconds that were sampled."""
        return math.fsum(self.lengths_s)

    @property
    def mean_cores(self) -> float:
        """Cores in use on average over the job."""
        used = math.fsum(length * cores for length, cores in zip(self.lengths_s, self.cores, strict=True))
        return used / self.total_s if self.total_s else 0.0


def read_series(path: Path) -> list[UtilisationSeries]:
    """Read the series of one or several jobs from a CSV file with a heading.

    The columns are one of time (``elapsed_s``, ``time_s`` or ``seconds``; ``timestamp`` in Unix seconds
    or ISO 8601), one of utilisation since the sample before (``cpu_percent`` with 100 for one core, or
    ``cores``), and perhaps ``job``. Others are ignored. A job's first sample covers as long as
    the second.

    Raises
    ------
    InputError
        The file cannot be read, a column is missing, a value is no number or negative, times do not
        increase, or there is a gap of more than ``GAP_SAMPLES`` samples.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            rows = csv.reader(stream)
            columns = _SeriesColumns.of(path, next(rows, []))
            samples: dict[str, list[tuple[float, float]]] = {}
            for row in rows:
                if not row:
                    continue
                where = f"{path}:{rows.line_num}"
                job = columns.job_of(row, path)
                samples.setdefault(job, []).append(columns.sample(row, where))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        detail = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"cannot read utilisation series {path}: {detail}") from error
    if not samples:
        raise InputError(f"{path} has no sample: record at least two")
    return [_series(path, job, points) for job, points in samples.items()]


def series_row(job: str, elapsed_s: float, cores: float) -> tuple[str, str, str]:
    """Return one sample as a row under ``HEADING``."""
    return job, f"{elapsed_s:.3f}", f"{100 * cores:.2f}"


@dataclass(frozen=True, slots=True)
class _SeriesColumns:
    time: int
    value: int
    per_core: float
    job: int | None

    @classmethod
    def of(cls, path: Path, heading: Sequence[str]) -> _SeriesColumns:
        names = [name.strip().lower() for name in heading]
        time = _place(names, _TIME_COLUMNS)
        percent, cores = _place(names, _PERCENT_COLUMNS), _place(names, _CORES_COLUMNS)
        value = percent if percent is not None else cores
        if time is None or value is None:
            known = (" or ".join(_TIME_COLUMNS), " or ".join((*_PERCENT_COLUMNS, *_CORES_COLUMNS)))
            raise InputError(f"{path} has no column for {known[time is not None]} in its first line")
        return cls(time, value, 100.0 if percent is not None else 1.0, _place(names, _JOB_COLUMNS))

    def job_of(self, row: list[str], path: Path) -> str:
        if self.job is None or self.job >= len(row):
            return path.stem
        return row[self.job].strip() or path.stem

    def sample(self, row: list[str], where: str) -> tuple[float, float]:
        try:
            time_s, value = _instant_s(row[self.time]), float(row[self.value])
        except (IndexError, ValueError) as error:
            raise InputError(f"{where}: a sample needs a time and a number, not {','.join(row)!r}") from error
        if not (math.isfinite(time_s) and math.isfinite(value)) or value < 0:
            raise InputError(f"{where}: {row[self.value].strip()} is no utilisation")
        return time_s, value / self.per_core


def _place(names: list[str], wanted: Sequence[str]) -> int | None:
    return next((names.index(name) for name in wanted if name in names), None)


def _instant_s(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return datetime.fromisoformat(text.strip()).timestamp()


def _series(path: Path, job: str, points: list[tuple[float, float]]) -> UtilisationSeries:
    times_s = [time_s for time_s, _ in points]
    lengths_s = [after - before for before, after in pairwise(times_s)]
    if any(length_s <= 0 for length_s in lengths_s):
        raise InputError(f"{path}: the times of {job} do not increase: sort them, once each")
    usual_s = sorted(lengths_s)[len(lengths_s) // 2] if lengths_s else SAMPLE_S
    if lengths_s and max(lengths_s) > GAP_SAMPLES * usual_s:
        raise InputError(
            f"{path}: {job} has a gap of {max(lengths_s):g} s between samples of {usual_s:g} s: leave it out"
        )
    first_s = lengths_s[0] if lengths_s else SAMPLE_S
    return UtilisationSeries(job, (first_s, *lengths_s), tuple(cores for _, cores in points))
