"""The trade-off of an eviction as a page: loss over the deadline, and what becomes of the nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from analysis.charts import INK, arrange, run_style
from simulator.eviction.eviction_problem import (
    EvictionAnswer,
    EvictionChoice,
    Question,
    answer_rows,
    choice_rows,
)
from simulator.eviction.programme_table import ProgrammeTable, job_items
from simulator.experiment_page import ExperimentTable, write_page

COLOURS = {EvictionChoice.KILL: "#B2433F", EvictionChoice.APP: "#2E7D55", EvictionChoice.SYSTEM: "#B87B00"}
MOST_POINTS = 250_000
"""Of the surface of nodes and deadlines; a larger one is not drawn."""
NAMES = {
    EvictionChoice.KILL: "killed",
    EvictionChoice.APP: "application checkpoint",
    EvictionChoice.SYSTEM: "system checkpoint",
}


def write_trade_off(
    path: Path, facts: Sequence[str], question: Question, lines: Mapping[str, Sequence[EvictionAnswer]]
) -> None:
    """Write the page, whole or not at all.

    Parameters
    ----------
    path
        The HTML file.
    facts
        What was asked, in sentences.
    question
        What was asked.
    lines
        By solver, answers for ascending deadlines; those of the first are shown in full, others are compared.

    Raises
    ------
    OutputError
        The file cannot be written.
    """
    answers = next(iter(lines.values()))
    figures = [("Loss over the deadline, and how nodes are freed", trade_off(question, lines))]
    if sum(job.nodes for job in question.jobs) * (question.steps + 1) <= MOST_POINTS:
        figures.append(("Least loss over nodes and deadline, from one table", surface(question)))
    header, rows = answer_rows(answers)
    choices_header, choices = choice_rows(answers[-1])
    tables = [
        ExperimentTable(name="Trade-off", title="the least loss by deadline", columns=header, rows=rows),
        ExperimentTable(
            name="Choices",
            title=f"what becomes of each job for a deadline of {answers[-1].deadline_min:g} min",
            columns=choices_header,
            rows=choices,
        ),
    ]
    write_page(path, "Eviction", facts, tables, figures)


def trade_off(question: Question, lines: Mapping[str, Sequence[EvictionAnswer]]) -> go.Figure:
    """Draw the loss as steps over the deadline, and below it how the first solver frees nodes."""
    figure = make_subplots(rows=2, shared_xaxes=True, vertical_spacing=0.08, row_heights=[0.55, 0.45])
    # The first is drawn on top of the others.
    for number, (name, line) in reversed(list(enumerate(lines.items()))):
        if line:
            figure.add_trace(_steps(name, line, number), row=1, col=1)
    answers = next(iter(lines.values()))
    held = {job.name: job.nodes for job in question.jobs}
    deadlines = [answer.deadline_min for answer in answers]
    for choice in EvictionChoice:
        nodes = [
            sum(held[name] for name, taken in answer.choices.items() if taken is choice) for answer in answers
        ]
        if any(nodes):
            bar = go.Bar(x=deadlines, y=nodes, name=NAMES[choice], marker={"color": COLOURS[choice]})
            figure.add_trace(bar, row=2, col=1)
    figure.add_hline(y=question.need, line={"color": INK, "width": 1, "dash": "dot"}, row=2, col=1)
    arrange(figure, 560, barmode="stack", showlegend=True, bargap=0.25)
    figure.update_layout(legend_traceorder="normal")
    figure.update_xaxes(title="deadline [min]", row=2, col=1)
    figure.update_yaxes(title="loss [node-hours]", rangemode="tozero", row=1, col=1)
    figure.update_yaxes(title="nodes", rangemode="tozero", row=2, col=1)
    return figure


def surface(question: Question) -> go.Figure:
    """Draw the least loss for every number of nodes and every deadline; white where it is not possible."""
    needs, losses = ProgrammeTable(question, job_items(question), every_need=True).surface()
    figure = go.Figure(
        go.Heatmap(
            x=[question.minutes_of(step) for step in range(question.steps + 1)],
            y=needs.tolist(),
            z=losses.tolist(),
            colorscale="YlOrRd",
            colorbar={"title": "node-hours"},
            hovertemplate="%{y} nodes in %{x} min: %{z:.1f} node-hours<extra></extra>",
        )
    )
    figure.add_hline(y=question.need, line={"color": INK, "width": 1, "dash": "dot"})
    arrange(figure, 460, xaxis_title="deadline [min]", yaxis_title="nodes to free")
    return figure


def _steps(name: str, answers: Sequence[EvictionAnswer], number: int) -> go.Scatter:
    return go.Scatter(
        x=[answer.deadline_min for answer in answers],
        y=[answer.loss for answer in answers],
        name=name,
        mode="lines+markers",
        line={**run_style(number), "shape": "hv"},
    )
