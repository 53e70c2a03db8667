"""Runs of one trace side by side: the verdict, what is an error, and what is a gain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from analysis.comparison.comparison_tables import RunErrors, pair, pairs, run_errors
from analysis.metrics import MetricOptions, RunMetrics, measure
from analysis.tables import distinctly_labelled
from analysis.verdict import Verdict, verdict_of
from analysis.verdict.paired_differences import are_errors, are_of_one_trace
from foundation.errors import OutputError, UsageError
from foundation.records import Run


@dataclass(frozen=True, slots=True)
class Compared:
    """Two runs or more of one trace; the first is the reference.

    Parameters
    ----------
    runs
        The runs, with labels that tell them apart.
    verdict
        What the comparison says.
    differences
        How far each other run is from the reference, job by job.
    """

    runs: tuple[Run, ...]
    verdict: Verdict
    differences: tuple[RunErrors, ...]

    @property
    def forecasts(self) -> list[tuple[Run, Run]]:
        """Pairs whose differences are errors: a real run and its simulation, or a repetition."""
        return [two for two in pairs(self.runs) if are_errors(two[0].info, two[1].info)]

    @property
    def settings(self) -> list[tuple[Run, Run]]:
        """Pairs that are two settings, so that their differences are gains and losses."""
        return [two for two in pairs(self.runs) if not are_errors(two[0].info, two[1].info)]

    @property
    def errors(self) -> list[RunErrors]:
        """The differences of ``forecasts``."""
        apart = zip(pairs(self.runs), self.differences, strict=True)
        return [one for two, one in apart if are_errors(two[0].info, two[1].info)]

    def metrics(self, options: MetricOptions = MetricOptions()) -> list[RunMetrics]:
        """Return the metrics of each run."""
        return [measure(run, options) for run in self.runs]

    def jobs(self) -> pl.DataFrame:
        """Return one row a job of the reference and the last run; see ``job_by_job.pair``."""
        return pair(self.runs[0], self.runs[-1])

    def write_page(self, target: Path, options: MetricOptions = MetricOptions()) -> list[RunMetrics]:
        """Write the comparison as one HTML page and return the metrics on it; raises OutputError."""
        # The chart library is slow to import, and tables need none of it.
        from analysis.comparison.comparison_page import comparison_section
        from analysis.report import write_report
        from analysis.verdict.verdict_page import gains_section

        sections = [gains_section(self.settings)] if self.settings else []
        if self.forecasts:
            sections.append(comparison_section(self.forecasts, self.errors))
        reference, *others = (run.info.label for run in self.runs)
        title = " \N{MIDDLE DOT} ".join(others)
        title = f"osub compare: {title} against {reference}"
        return write_report(self.runs, target, options, sections, title=title)

    def write_csv(self, target: Path) -> None:
        """Write all jobs of the reference and the last run; raises OutputError."""
        try:
            self.jobs().write_csv(target)
        except OSError as error:
            raise OutputError(f"cannot write {target}: {error.strerror or error}") from error


def compared(
    runs: Sequence[Run], least_run_s: float = 0.0, options: MetricOptions = MetricOptions()
) -> Compared:
    """Compare runs of one trace, the first with each other one.

    Parameters
    ----------
    runs
        Two or more.
    least_run_s
        Jobs that ran shorter in the reference do not count in the errors.
    options
        When a run is unfit to judge by.

    Raises
    ------
    UsageError
        There are fewer than two runs, no job is in two of them, or they are not of one trace.
    """
    if len(runs) < 2:
        raise UsageError("a comparison takes at least two RUNs; `osub report` draws a single one")
    labelled = tuple(distinctly_labelled(runs))
    differences = tuple(run_errors(reference, other, least_run_s) for reference, other in pairs(labelled))
    if not any(one.jobs for one in differences):
        raise UsageError("these runs have no job in common: are they of the same trace?")
    for reference, other in pairs(labelled):
        if not are_of_one_trace(reference, other):
            raise UsageError(
                f"{reference.info.label} and {other.info.label} are not of one trace "
                f"({reference.info.trace_name}, {other.info.trace_name}): their jobs have the same numbers "
                "and nothing else in common; `osub report` shows them side by side"
            )
    return Compared(labelled, verdict_of(labelled, options), differences)
