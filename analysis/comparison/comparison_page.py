"""The comparison's sections of the HTML page."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from analysis.charts import Chart, arrange, run_style, safe
from analysis.comparison.comparison_tables import (
    ERROR_COLUMNS,
    JOB_COLUMNS,
    RunErrors,
    error_curve,
    error_rows,
    job_rows,
    pair,
)
from analysis.pages import PageBlock, PageTable, Section
from foundation.records import Run
from foundation.units import counted

MOST_JOBS = 200
_LEAST_ERROR_S = 1e-3
_LEAST_SHARE = 1e-4


def comparison_section(
    compared: Sequence[tuple[Run, Run]], errors: Sequence[RunErrors], notes: Sequence[str] = ()
) -> Section:
    """Return the section for pairs of runs: a reference, and the run that is held against it.

    Parameters
    ----------
    compared
        The pairs.
    errors
        Of the second of each pair.
    notes
        Paragraphs that come first.
    """
    references = {reference.info.label for reference, _ in compared}
    against = f"against {references.pop()}" if len(references) == 1 else "of each run against its real one"
    blocks = [PageBlock("", note) for note in notes]
    blocks += [
        PageBlock(
            f"Errors {against}",
            "Absolute differences over the jobs that completed in both; the bias has its sign.",
            grid=PageTable(
                columns=("run", *ERROR_COLUMNS),
                rows=[[one.label, *cells] for one, cells in zip(errors, error_rows(errors), strict=True)],
                texts=1,
            ),
        ),
        PageBlock("How many jobs are how far off", *_curves(compared)),
    ]
    for reference, other in compared:
        shown = min(MOST_JOBS, max(reference.jobs.height, other.jobs.height))
        blocks.append(
            PageBlock(
                f"{other.info.label} against {reference.info.label}, job by job",
                f"The first {counted(shown, 'job')}. 0(0-1) are the cores 0 and 1 of the first node.",
                grid=PageTable(columns=JOB_COLUMNS, rows=job_rows(reference, other, MOST_JOBS), texts=3),
            )
        )
    return Section("comparison", "Job by job", blocks)


def _curves(compared: Sequence[tuple[Run, Run]]) -> tuple[str, Chart]:
    figure = make_subplots(
        cols=2, shared_yaxes=True, subplot_titles=("start [s]", "run time [%]"), horizontal_spacing=0.04
    )
    apart = len({reference.info.label for reference, _ in compared}) > 1
    for number, (reference, other) in enumerate(compared, start=0 if apart else 1):
        paired = pair(reference, other)
        for column, (name, least, factor) in enumerate(
            (("start_error_s", _LEAST_ERROR_S, 1.0), ("run_error", _LEAST_SHARE, 100.0)), start=1
        ):
            sizes, shares = error_curve(paired[name])
            line = go.Scatter(
                x=[max(size, least) * factor for size in sizes],
                y=[100 * share for share in shares],
                name=safe(other.info.label),
                line=run_style(number, simulated=other.info.kind == "simulated"),
                showlegend=column == 1,
                mode="lines",
            )
            figure.add_trace(line, row=1, col=column)
    arrange(figure, 380, legend={"y": 1 + 34 / 288}, margin={"t": 70})
    figure.update_annotations(font={"size": 13}, yshift=4)
    figure.update_xaxes(type="log")
    figure.update_yaxes(title="share of the jobs [%]", range=[0, 101], col=1)
    floor = f"{_LEAST_ERROR_S:g} s or {_LEAST_SHARE:.2%}"
    caption = f"Jobs with an error of at most so much. Errors below {floor} are drawn there."
    return caption, Chart(figure, caption)
