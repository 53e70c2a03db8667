"""Sizes of malleable jobs from a file, for those who know what their jobs can do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from foundation.errors import InputError, UsageError
from simulator.world.malleable_speedup import amdahl
from simulator.world.simulated_job import Sizes
from workloads.exchange.sizes import HEADER, size_lines

_MOST_LINES = 1_000_000


def read_sizes(path: Path, asked: Mapping[int, int], nodes: int) -> dict[int, Sizes]:
    """Read the sizes of jobs: CSV with the header ``trace_job,min_nodes,preferred_nodes,max_nodes,parallel``.

    ``parallel`` is the share of a job's work that is spread over its nodes, by Amdahl's law.

    Parameters
    ----------
    path
        The file.
    asked
        The nodes that each job of the trace asks for, by its number.
    nodes
        How many nodes the system has.

    Raises
    ------
    InputError
        The file cannot be read, has another form, or the sizes of a job contradict each other, its request or
        the system; the message names file, line, column and job.
    """
    found: dict[int, Sizes] = {}
    for where, row in size_lines(path):
        if len(found) == _MOST_LINES:
            raise InputError(f"{where}: more than {_MOST_LINES} jobs")
        job, sizes = _line(row, where, asked, nodes)
        if job in found:
            raise InputError(f"{where}: trace_job: job {job} is there twice")
        found[job] = sizes
    return found


def _line(row: Sequence[str], where: str, asked: Mapping[int, int], nodes: int) -> tuple[int, Sizes]:
    job, least, preferred, most = (
        _whole(text, f"{where}: {name}") for text, name in zip(row[:4], HEADER[:4], strict=True)
    )
    if job not in asked:
        raise InputError(f"{where}: trace_job: there is no batch job {job} to simulate")
    for low, name, high, other in (
        (1, "", least, "min_nodes"),
        (least, "min_nodes", most, "max_nodes"),
        (least, "min_nodes", preferred, "preferred_nodes"),
        (preferred, "preferred_nodes", most, "max_nodes"),
        (least, "min_nodes", asked[job], "its request"),
        (asked[job], "its request", most, "max_nodes"),
        (most, "max_nodes", nodes, "the system's nodes"),
    ):
        if low > high:
            column = name if name in HEADER else other
            what = f"{name} {low}".strip()
            raise InputError(f"{where}: {column}: job {job}: {what} is over {other} {high}")
    return job, Sizes(
        least=least, preferred=preferred, most=most, rates=_rates(row[4], where, most, asked[job])
    )


def _rates(text: str, where: str, most: int, asked: int) -> tuple[int, ...]:
    try:
        return amdahl(most, asked, float(text))
    except ValueError:
        raise InputError(f"{where}: parallel: {text[:40]!r} is not a number from 0 to 1") from None
    except UsageError as error:
        raise InputError(f"{where}: parallel: {error}") from None


def _whole(text: str, where: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise InputError(f"{where}: {text[:40]!r} is not a whole number")
    return int(text)
