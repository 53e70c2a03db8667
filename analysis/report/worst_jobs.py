"""The jobs that suffered most, each with what happened to it under every setting."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from analysis.charts import Measured
from analysis.tables import ABSENT, number

ROWS = 12


def worst_jobs(runs: Sequence[Measured]) -> tuple[list[str], list[list[str]]]:
    """Return the heading and the rows of a table of the jobs with the largest S_OSub in any run.

    Columns: job, kind, application, cores; then, for each run, wait, degradation and S_OSub.
    """
    ranked = pl.concat([run.jobs.select("trace_job", "slowdown_osub").drop_nulls() for run in runs]).group_by(
        "trace_job"
    )
    worst = ranked.agg(pl.col("slowdown_osub").max()).sort(
        "slowdown_osub", "trace_job", descending=[True, False]
    )
    numbers = worst.get_column("trace_job").head(ROWS).to_list()
    details = [
        {row["trace_job"]: row for row in _chosen(run.jobs, numbers).iter_rows(named=True)} for run in runs
    ]
    rows: list[list[str]] = []
    for job in numbers:
        first = next(known[job] for known in details if job in known)
        cells = [str(job), first["kind"], first["app"] or ABSENT, f"{first['cores']:,}"]
        for known in details:
            row = known.get(job, {})
            cells += [
                ABSENT if (value := row.get(name)) is None else number(value)
                for name in ("wait_s", "degradation", "slowdown_osub")
            ]
        rows.append(cells)
    return ["job", "kind", "application", "cores"], rows


def _chosen(jobs: pl.DataFrame, numbers: Sequence[int]) -> pl.DataFrame:
    columns = ["trace_job", "kind", "app", "cores", "wait_s", "degradation", "slowdown_osub"]
    return jobs.select(columns).filter(pl.col("trace_job").is_in(numbers))
