"""Runs, real or simulated: tables, metrics, pictures; comparisons of runs of one trace, and pages."""

from __future__ import annotations

import shutil
import weakref
from collections.abc import Sequence
from functools import cached_property
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foundation.errors import OutputError, UsageError
from foundation.one_line import one_line
from foundation.specification import PathText, as_path
from foundation.units import counted

if TYPE_CHECKING:
    import plotly.graph_objects as go
    import polars as pl

    from analysis.comparison import Compared
    from analysis.metrics import RunMetrics
    from analysis.verdict import Verdict
    from foundation.records import Run as Record
    from foundation.records import RunInfo


WAIT_THRESHOLD_S, BETA_S = 5.0, 10.0


class Run:
    """A RUN folder. Its tables are read when they are first asked for.

    Parameters
    ----------
    path
        The folder.
    outcome
        What the simulation reported; empty for a run that was not just simulated.
    scratch
        A folder to remove with the run.
    """

    def __init__(
        self, path: Path, outcome: dict[str, Any] | None = None, scratch: Path | None = None
    ) -> None:
        self.path = path
        self.outcome: dict[str, Any] = outcome or {}
        if scratch is not None:
            weakref.finalize(self, shutil.rmtree, scratch, ignore_errors=True)

    @cached_property
    def record(self) -> Record:
        """The run as the other packages take it."""
        from foundation.records import load_run

        return load_run(self.path)

    @property
    def info(self) -> RunInfo:
        """What ran where: ``run.json``."""
        return self.record.info

    @property
    def label(self) -> str:
        """Its name in tables and charts."""
        return self.info.label

    @property
    def jobs(self) -> pl.DataFrame:
        """One row a job, with the columns of ``docs/records.md``."""
        return self.record.jobs

    @property
    def allocations(self) -> pl.DataFrame | None:
        """Allocations of jobs with several attempts or changing sizes; None where each has one attempt."""
        return self.record.allocations

    @property
    def slices(self) -> pl.DataFrame | None:
        """The time slices, if there were any."""
        return self.record.slices

    @cached_property
    def _measured(self) -> pl.DataFrame:
        from analysis.metrics import with_derived

        return with_derived(self.jobs, held=self._held)

    @cached_property
    def _held(self) -> pl.DataFrame:
        from analysis.metrics import stretches

        return stretches(self.jobs, self.allocations)

    def with_measures(self) -> pl.DataFrame:
        """Return the jobs with ``wait_s``, ``run_s``, ``slowdown_osub``, ``degradation`` and more."""
        return self._measured

    def metrics(self, *, wait_threshold_s: float = WAIT_THRESHOLD_S, beta_s: float = BETA_S) -> RunMetrics:
        """Return the run's metrics.

        Parameters
        ----------
        wait_threshold_s
            A job that waits longer counts as one that waited.
        beta_s
            Least dedicated time in the bounded slowdown.

        Raises
        ------
        UsageError
            One of them is no number or negative.
        """
        for name, value in (("wait_threshold_s", wait_threshold_s), ("beta_s", beta_s)):
            if isinstance(value, bool) or not (isinstance(value, Real) and value >= 0):
                raise UsageError(f"{name} takes a number, 0 s or more, not {one_line(repr(value), 60)}")
        from analysis.metrics import MetricOptions, measure

        return measure(self.record, MetricOptions(wait_threshold_s=wait_threshold_s, beta_s=beta_s))

    @property
    def plot(self) -> Plots:
        """Its charts, as Plotly figures."""
        return Plots(self)

    def report(self, path: PathText) -> Path:
        """Write the run's page, and return its path; see ``osub.report``."""
        from analysis.report import write_report
        from analysis.tables import distinctly_labelled

        target = as_path(path, "path")
        write_report(distinctly_labelled([self.record]), target)
        return target

    def save(self, path: PathText) -> Run:
        """Copy the RUN to a folder that does not exist yet, and return the copy.

        Raises
        ------
        OutputError
            The folder exists, or cannot be written.
        """
        target = as_path(path, "path")
        if target.exists():
            raise OutputError(f"{target} exists already: choose another folder for the run")
        try:
            shutil.copytree(self.path, target)
        except (OSError, shutil.Error) as error:
            shutil.rmtree(target, ignore_errors=True)
            raise OutputError(
                f"cannot write {target}: {getattr(error, 'strerror', None) or error}"
            ) from error
        return Run(target, self.outcome)

    def __repr__(self) -> str:
        return f"Run({self.label!r}, {counted(self.jobs.height, 'job')}, {self.info.kind})"

    def _repr_html_(self) -> str:
        """Return the metrics that a reader looks at first, as a table."""
        import html

        from analysis.tables import metric_rows

        rows = [row for row in metric_rows([self.metrics()]) if not row.detail]
        lines = "".join(
            f"<tr><td>{html.escape(row.group)}</td><td>{html.escape(row.name)}</td>"
            f"<td style='text-align:right'>{html.escape(row.cells[0])}</td></tr>"
            for row in rows
        )
        return f"<p><b>{html.escape(self.label)}</b></p><table>{lines}</table>"


class Plots:
    """The charts of a run; each returns a Plotly figure, which a notebook shows."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def gantt(self) -> go.Figure:
        """Every job on its nodes and cores; how full the nodes were, where the jobs are too many.

        Raises
        ------
        UsageError
            No job of the run has a place.
        """
        from analysis.charts import gantt

        run = self._run
        chart = gantt(run._measured, run.info, held=run._held)  # noqa: SLF001 - of the same module's class
        if chart is None:
            raise UsageError(f"no job of {run.label} has a known place: there is nothing to draw")
        return chart.figure

    def waits(self) -> go.Figure:
        """How many jobs waited how long."""
        from analysis.charts import wait_chart
        from analysis.metrics import MetricOptions

        return wait_chart([self._curve()], MetricOptions()).figure

    def slowdowns(self) -> go.Figure:
        """How many jobs were slowed down how much."""
        from analysis.charts import slowdown_chart

        return slowdown_chart([self._curve()]).figure

    def completion(self) -> go.Figure:
        """How much of the work was done when."""
        from analysis.charts import completion_chart

        return completion_chart([self._curve()]).figure

    def _curve(self) -> Any:
        from analysis.charts import ChartedRun

        run = self._run
        return ChartedRun(run.label, run._measured, 0, run.info.kind == "simulated")  # noqa: SLF001 - of the same module's class


def load(path: PathText) -> Run:
    """Return the run in a RUN folder.

    Raises
    ------
    InputError
        It is no RUN, or a damaged one.
    """
    run = Run(as_path(path, "path"))
    run.record  # noqa: B018  (an error belongs here, and not where the run is first used)
    return run


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
