"""The figures of the thesis's experiments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from analysis.charts import INK, MUTED, arrange, run_style
from simulator.experiment_page import Drawing
from simulator.experiments.thesis_cases import CURVE_SHARES, CaseOutcome, published_label
from simulator.experiments.thesis_comparisons import ALL_SLOWDOWN, BATCH_SLOWDOWN, CHAPTER_6, SurveyOutcome


def bars(
    outcomes: Sequence[CaseOutcome],
    values: Sequence[tuple[str, Sequence[float]]],
    title: str,
    *,
    log: bool,
    thesis: Mapping[str, float] | None = None,
) -> go.Figure:
    """Draw bars for each case, and what the thesis tells; on a logarithmic axis zeros have no bar."""
    figure = go.Figure()
    labels = [outcome.label for outcome in outcomes]
    for number, (name, heights) in enumerate(values):
        figure.add_bar(
            x=labels,
            y=[height if height > 0 or not log else None for height in heights],
            name=name,
            marker={"color": run_style(number)["color"]},
            text=[_short(height) for height in heights],
            textposition="outside",
            cliponaxis=False,
        )
    if thesis is not None:
        published = [
            (label, thesis[published_label(label)]) for label in labels if published_label(label) in thesis
        ]
        figure.add_scatter(
            x=[label for label, _ in published],
            y=[height if height > 0 or not log else None for _, height in published],
            name="thesis",
            mode="markers",
            marker={"symbol": "diamond-open", "size": 11, "color": INK, "line": {"width": 2}},
        )
    arrange(figure, 400, barmode="group", showlegend=True)
    figure.update_xaxes(tickangle=-30)
    figure.update_yaxes(title=title, type="log" if log else "linear")
    if log:
        figure.update_yaxes(dtick=1, exponentformat="power")
    return figure


def waits(outcomes: Sequence[CaseOutcome], thesis: Mapping[str, float]) -> go.Figure:
    """Draw which share of the interactive jobs waits (Tables 5.3 and 6.2)."""
    shares = [100 * outcome.interactive_waited for outcome in outcomes]
    published = {label: 100 * share for label, share in thesis.items()}
    return bars(outcomes, [("ours", shares)], "interactive jobs that wait [%]", log=False, thesis=published)


def _short(value: float) -> str:
    """Return a number for a bar: three digits, thousands as k."""
    if value >= 10_000:
        return f"{value / 1000:,.0f}k"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def slowdown_curves(outcomes: Sequence[CaseOutcome]) -> go.Figure:
    """Draw S_OSub over the cumulative share of the jobs (Figures 5.6 and 6.6(c))."""
    figure = go.Figure()
    for number, outcome in enumerate(outcomes):
        figure.add_scatter(
            x=[100 * share for share in CURVE_SHARES],
            y=outcome.curve,
            name=outcome.label,
            mode="lines",
            line=run_style(number),
        )
    arrange(figure, 420)
    figure.update_xaxes(title="cumulative share of the jobs [%]", range=[60, 100.2])
    figure.update_yaxes(title="S_OSub", type="log", dtick=1, exponentformat="power")
    return figure


def trade_off(outcomes: Sequence[CaseOutcome]) -> go.Figure:
    """Draw what MQ costs long normal jobs over the share of interactive jobs that wait (Figure 5.7)."""
    chosen = [outcome for outcome in outcomes if outcome.label.startswith("MQ")]
    figure = go.Figure(
        go.Scatter(
            x=[100 * outcome.interactive_waited for outcome in chosen],
            y=[outcome.slowdown_long_batch_max for outcome in chosen],
            text=[outcome.label.removeprefix("MQ, ") for outcome in chosen],
            mode="markers+text",
            textposition="middle right",
            cliponaxis=False,
            marker={"size": 9, "color": run_style(0)["color"]},
        )
    )
    arrange(figure, 380)
    figure.update_xaxes(title="interactive jobs that wait [%]", rangemode="tozero")
    figure.update_yaxes(title="largest S_OSub of normal jobs over 600 s", rangemode="tozero")
    return figure


def figures_5(outcomes: Sequence[CaseOutcome], part: str, waited: Mapping[str, float]) -> list[Drawing]:
    """Return Figures 5.4 to 5.7, for one of the two traces."""
    outcomes = _repeated(outcomes)
    return [
        (f"Table 5.3{part}: interactive jobs that wait", waits(outcomes, waited)),
        (
            f"Figure 5.4{part}: longest wait of interactive jobs",
            bars(outcomes, [("wait", [one.interactive_wait_max_s for one in outcomes])], "s", log=True),
        ),
        (f"Figure 5.5{part}: largest S_OSub", _largest(outcomes, "normal", "HRR")),
        (f"Figure 5.6{part}: distribution of S_OSub", slowdown_curves(outcomes)),
        (f"Figure 5.7{part}: the trade-off of MQ", trade_off(outcomes)),
    ]


def figures_6(outcomes: Sequence[CaseOutcome], found: Sequence[SurveyOutcome]) -> list[Drawing]:
    """Return Figures 6.6 and 6.7."""
    outcomes = _repeated(outcomes)
    published = {**BATCH_SLOWDOWN, **ALL_SLOWDOWN}
    drawn = [
        ("Table 6.2: interactive jobs that wait", waits(outcomes, CHAPTER_6.waited)),
        (
            "Figure 6.6(a): longest wait of interactive jobs",
            bars(outcomes, [("wait", [one.interactive_wait_max_s for one in outcomes])], "s", log=True),
        ),
        ("Figure 6.6(b): largest S_OSub", _largest(outcomes, "batch", "interactive", published)),
        ("Figure 6.6(c): distribution of S_OSub", slowdown_curves(outcomes)),
    ]
    if found:
        drawn.append(("Figure 6.7: largest S_OSub by data set", _by_data_set(found)))
    return drawn


def _repeated(outcomes: Sequence[CaseOutcome]) -> list[CaseOutcome]:
    """Return the cases of the thesis, without those that only round R otherwise."""
    return [outcome for outcome in outcomes if outcome.label == published_label(outcome.label)]


def _largest(
    outcomes: Sequence[CaseOutcome], batch: str, interactive: str, thesis: Mapping[str, float] | None = None
) -> go.Figure:
    values = [
        (batch, [one.slowdown_batch_max for one in outcomes]),
        (interactive, [one.slowdown_interactive_max for one in outcomes]),
    ]
    return bars(outcomes, values, "S_OSub", log=True, thesis=thesis)


def _by_data_set(found: Sequence[SurveyOutcome]) -> go.Figure:
    figure = make_subplots(cols=2, shared_yaxes=True, subplot_titles=("batch", "interactive"))
    lines = (
        ("SQ, M=4", [one.sq for one in found]),
        ("MQ, no job waits", [one.prompt.outcome for one in found]),
        ("MQ, least S_OSub", [one.fair.outcome for one in found]),
    )
    for column, kind in enumerate(("slowdown_batch_max", "slowdown_interactive_max"), start=1):
        for number, (name, outcomes) in enumerate(lines):
            line = go.Scatter(
                x=[one.interactive_jobs for one in found],
                y=[getattr(outcome, kind) for outcome in outcomes],
                name=name,
                mode="lines+markers",
                line=run_style(number),
                showlegend=column == 1,
            )
            figure.add_trace(line, row=1, col=column)
    arrange(figure, 400, margin={"l": 64, "r": 44, "t": 76, "b": 52})
    figure.update_layout(legend={"y": 1.12})
    figure.update_xaxes(title="interactive jobs", rangemode="tozero")
    figure.update_yaxes(title="largest S_OSub", col=1)
    figure.update_yaxes(rangemode="tozero")
    figure.add_hline(y=5, line={"color": MUTED, "width": 1, "dash": "dot"})
    return figure
