"""Reads what each job is from a CSV file, instead of drawing it.

Columns ``trace_job`` and ``kind`` (rigid, malleable, ondemand), and any of ``min_nodes``, ``max_nodes``,
``setup_s``, ``checkpoint_every_s``, ``checkpoint_s``, ``notice_s``, ``predicted_s``; empty is not given. Jobs
that the file does not name are rigid, without set-up and checkpoints.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from pathlib import Path

from foundation.errors import InputError
from foundation.units import seconds_to_us
from simulator.hybrid.drawn_jobs import Draw, linear_sizes
from simulator.simulation import Workload
from simulator.world import PLAIN_LIFE, JobLives, Life, Sizes

_NEEDED = ("trace_job", "kind")
_NUMBERS = ("min_nodes", "max_nodes")
_TIMES = ("setup_s", "checkpoint_every_s", "checkpoint_s", "notice_s", "predicted_s")
_KINDS = ("rigid", "malleable", "ondemand")
_OF_KIND = {
    "rigid": ("setup_s", "checkpoint_every_s", "checkpoint_s"),
    "malleable": ("min_nodes", "max_nodes", "setup_s"),
    "ondemand": ("notice_s", "predicted_s"),
}
_MOST_S = 1e10
_MOST_JOBS = 10_000_000


def read_lives(path: Path, workload: Workload, draw: Draw) -> Workload:
    """Return the workload with what the file says of its jobs; jobs that are not simulated are passed over.

    Raises
    ------
    InputError
        The file cannot be read, or says what cannot be; the message names job, file and column.
    """
    from dataclasses import replace

    lives: list[Life] = [PLAIN_LIFE] * workload.count
    index = {number: job for job, number in enumerate(workload.number.tolist())}
    known: set[int] = set()
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = csv.DictReader(file, strict=True)
            _check_header(path, rows.fieldnames)
            for row in rows:
                entry = _Row(path, rows.line_num, row)
                number = entry.number("trace_job")
                if number is None or number in known:
                    entry.refuse("trace_job", "is missing" if number is None else "comes twice")
                if len(known) == _MOST_JOBS:
                    raise InputError(f"{path}, line {rows.line_num}: more than {_MOST_JOBS} jobs")
                known.add(number or 0)
                if number in index:
                    lives[index[number]] = _life(entry, workload, index[number], draw)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} cannot be read: {error}") from None
    return replace(workload, lives=JobLives.of(lives, workload.count))


def _check_header(path: Path, names: object) -> None:
    found = list(names) if isinstance(names, list) else []
    known = (*_NEEDED, *_NUMBERS, *_TIMES)
    for name in _NEEDED:
        if name not in found:
            raise InputError(f"{path} has no column {name}: write {', '.join(known)}")
    for name in found:
        if name not in known or found.count(name) > 1:
            raise InputError(
                f"{path}: column {name!r} is not known or comes twice; known: {', '.join(known)}"
            )


class _Row:
    """A line of the file."""

    def __init__(self, path: Path, line: int, row: Mapping[str | None, object]) -> None:
        self.path = path
        self.line = line
        self.row = row
        if None in row or None in row.values():
            raise InputError(f"{path}, line {line}: it has more or fewer columns than the header")

    def text(self, name: str) -> str:
        """Return what stands in a column."""
        return str(self.row.get(name, "") or "").strip()

    def refuse(self, name: str, why: str) -> None:
        """Raise the error of a column."""
        job = self.text("trace_job") or "?"
        raise InputError(f"{self.path}, line {self.line}, job {job}: {name} {why}")

    def number(self, name: str) -> int | None:
        """Return a whole number from 1; None if nothing is given."""
        text = self.text(name)
        if not text:
            return None
        if not text.isascii() or not text.isdigit() or len(text) > 15 or int(text) < 1:
            self.refuse(name, f"is not a whole number from 1: {text!r}")
        return int(text)

    def time_us(self, name: str) -> int | None:
        """Return seconds as microseconds; None if nothing is given."""
        text = self.text(name)
        if not text:
            return None
        try:
            seconds = float(text)
        except ValueError:
            seconds = math.nan
        if not 0 <= seconds <= _MOST_S:
            self.refuse(name, f"is not a number of seconds: {text!r}")
        return seconds_to_us(seconds)


def _life(entry: _Row, workload: Workload, job: int, draw: Draw) -> Life:
    kind = entry.text("kind")
    if kind not in _KINDS:
        entry.refuse("kind", f"is one of {', '.join(_KINDS)}, not {kind!r}")
    for name in (*_NUMBERS, *_TIMES):
        if entry.text(name) and name not in _OF_KIND[kind]:
            entry.refuse(name, f"does not go with a job that is {kind}")
    if kind == "ondemand":
        return _on_demand(entry, workload, job)
    setup_us = entry.time_us("setup_s") or 0
    if setup_us > workload.periods.totals_us[job]:
        entry.refuse("setup_s", "is longer than the job runs")
    if kind == "malleable":
        return Life(sizes=_sizes(entry, int(workload.nodes[job]), draw), setup_us=setup_us)
    every_us = entry.time_us("checkpoint_every_s")
    if every_us == 0:
        entry.refuse("checkpoint_every_s", "is not positive")
    return Life(
        setup_us=setup_us,
        checkpoint_every_us=every_us,
        checkpoint_us=entry.time_us("checkpoint_s") or 0,
    )


def _sizes(entry: _Row, asked: int, draw: Draw) -> Sizes:
    least, most = entry.number("min_nodes"), entry.number("max_nodes")
    if most is not None and most != asked:
        entry.refuse("max_nodes", f"is {most}, but the job asks for {asked} nodes")
    if least is None:
        return linear_sizes(asked, draw.least)
    if least > asked:
        entry.refuse("min_nodes", f"is {least}, above max_nodes, {asked}")
    return Sizes(least=least, preferred=asked, most=asked, rates=tuple(range(1, asked + 1)))


def _on_demand(entry: _Row, workload: Workload, job: int) -> Life:
    notice_us, predicted_us = entry.time_us("notice_s"), entry.time_us("predicted_s")
    if (notice_us is None) != (predicted_us is None):
        entry.refuse("predicted_s" if predicted_us is None else "notice_s", "is missing beside the other")
    if notice_us is None or predicted_us is None:
        return Life(on_demand=True)
    if notice_us > int(workload.submit_us[job]):
        entry.refuse("notice_s", "is after the job's arrival")
    if predicted_us < notice_us:
        entry.refuse("predicted_s", "is before notice_s")
    return Life(on_demand=True, notice_us=notice_us, predicted_us=predicted_us)
