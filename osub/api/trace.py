"""A trace of jobs, in the Standard Workload Format."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from foundation.specification import PathText, as_path
from foundation.units import counted

if TYPE_CHECKING:
    import polars as pl

    from workloads.swf import SwfColumns


@dataclass(frozen=True)
class Trace:
    """A trace.

    Parameters
    ----------
    path
        The file that it was read from.
    name
        What it calls itself, else the file's name.
    """

    path: Path
    name: str
    _columns: SwfColumns = field(repr=False, compare=False)

    @cached_property
    def jobs(self) -> pl.DataFrame:
        """One row a job, in the file's order: SWF's fields, seconds, null where nothing is known."""
        return self._columns.frame

    def __len__(self) -> int:
        return self._columns.frame.height

    def __repr__(self) -> str:
        return f"Trace({self.name!r}, {counted(len(self), 'job')})"

    def _repr_html_(self) -> str:
        """Return the first jobs as a table."""
        import html

        jobs = counted(len(self), "job")
        return f"<p><b>{html.escape(self.name)}</b>: {jobs}</p>{self.jobs.head(8)._repr_html_()}"


def load_trace(path: PathText, *, lenient: bool = False) -> Trace:
    """Read a trace.

    Parameters
    ----------
    path
        An SWF file, plain or gzip, or the folder of a RUN, whose trace is then read.
    lenient
        Leave lines out that break a rule, instead of refusing the trace.

    Raises
    ------
    InputError
        It cannot be read, or breaks a rule of the format.
    """
    from foundation.records import TRACE_NAME
    from workloads.swf import load_columns

    file = as_path(path, "path")
    if file.is_dir():
        file /= TRACE_NAME
    columns = load_columns(file, strict=not lenient)
    return Trace(file, columns.name, columns)
