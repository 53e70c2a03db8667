"""Pages of runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from foundation.errors import UsageError
from osub.api.comparison import as_run
from osub.api.run import Run
from osub.api.words import PathText, as_path, speaks_of_parameters


@speaks_of_parameters
def report(runs: Run | PathText | Sequence[Run | PathText], path: PathText) -> Path:
    """Write one offline HTML page of one or several runs, and return its path.

    Parameters
    ----------
    runs
        A run, the path of one, or several.
    path
        The page; an existing one is replaced.

    Raises
    ------
    UsageError
        There is no run.
    InputError, OutputError
        A path is no RUN; the page cannot be written.
    """
    from analysis.report import write_report
    from analysis.tables import told_apart

    several = list(runs) if isinstance(runs, Sequence) and not isinstance(runs, str) else [runs]
    if not several:
        raise UsageError("runs is empty: a page takes one run at least")
    target = as_path(path, "path")
    write_report(told_apart([as_run(run).record for run in several]), target)
    return target
