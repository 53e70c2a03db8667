"""Two runs or more of one trace, side by side, and pages of runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from foundation.errors import UsageError
from osub.api.run import Run, load
from osub.api.words import PathText, as_path, speaks_of_parameters

if TYPE_CHECKING:
    import polars as pl

    from analysis.comparison import Compared
    from analysis.verdict import Verdict


class Comparison:
    """A comparison; the first run is the reference. ``str()`` of it is the verdict in words."""

    def __init__(self, found: Compared) -> None:
        self._found = found

    @property
    def verdict(self) -> Verdict:
        """The answer, its figures with intervals, and its evidence; see ``docs/verdict.md``."""
        return self._found.verdict

    @property
    def labels(self) -> tuple[str, ...]:
        """The runs' names, made distinct."""
        return tuple(run.info.label for run in self._found.runs)

    def metrics(self) -> pl.DataFrame:
        """Return one row a run: its label and its figures, such as ``kinds.batch.wait_s.mean``.

        Names and units are those of ``osub report --json``; ``run.metrics()`` has the figures as an object.
        """
        import polars as pl

        from analysis.metrics import named_figures

        rows = [{"label": one.label, **named_figures(one)} for one in self._found.metrics()]
        return pl.from_dicts(rows, infer_schema_length=None)

    def jobs(self) -> pl.DataFrame:
        """Return one row a job of the reference and the last run: when and where it ran in both."""
        return self._found.jobs()

    def gains(self) -> pl.DataFrame:
        """Return the jobs that completed in the reference and the last run, the greatest gain first."""
        from analysis.verdict.verdict_in_terminal import gains

        return gains(self._found.runs[0], self._found.runs[-1])

    def report(self, path: PathText) -> Path:
        """Write the comparison as one offline HTML page and return its path; raises OutputError."""
        target = as_path(path, "path")
        self._found.write_page(target)
        return target

    def __str__(self) -> str:
        from analysis.verdict.verdict_in_terminal import verdict_lines

        return "\n".join(str(line) for line in verdict_lines(self.verdict))

    def __repr__(self) -> str:
        return f"Comparison({', '.join(map(repr, self.labels))})"

    def _repr_html_(self) -> str:
        import html

        return "".join(f"<p>{html.escape(line)}</p>" for line in str(self).splitlines())


@speaks_of_parameters
def compare(reference: Run | PathText, *others: Run | PathText) -> Comparison:
    """Compare runs of one trace.

    Parameters
    ----------
    reference
        A run, or the path of one; the others are held against it.
    others
        At least one.

    Raises
    ------
    UsageError
        There is only one run, or no job is in two of them.
    InputError
        A path is no RUN.
    """
    from analysis.comparison import compared

    return Comparison(compared([as_run(run).record for run in (reference, *others)]))


def as_run(given: Run | PathText) -> Run:
    """Return a run that is given, or the one in that folder."""
    return given if isinstance(given, Run) else load(given)


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
    from analysis.tables import distinctly_labelled

    several = list(runs) if isinstance(runs, Sequence) and not isinstance(runs, str) else [runs]
    if not several:
        raise UsageError("runs is empty: a page takes one run at least")
    target = as_path(path, "path")
    write_report(distinctly_labelled([as_run(run).record for run in several]), target)
    return target
