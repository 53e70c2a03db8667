"""What all charts share: colours that colour-blind readers tell apart, one layout, safe texts, HTML."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from osub.analysis.rows import HOURS_FROM_S

RUN_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#5B4B8A", "#4D4D4D")
"""Colours of runs, after Okabe and Ito; further runs repeat them with another dash."""
REAL_DASHES, SIMULATED_DASHES = ("solid", "longdash"), ("dot", "dashdot")
KIND_NAMES = {"batch": "batch", "interactive": "interactive", "ondemand": "on-demand"}
KIND_COLOURS = {"batch": "#4C78A8", "interactive": "#EE8A2A", "ondemand": "#3F9C6B"}
JOB_COLOURS = (
    "#4C78A8",
    "#EE8A2A",
    "#3F9C6B",
    "#CC79A7",
    "#8C6D31",
    "#56B4E9",
    "#B2433F",
    "#7B61A8",
    "#C9A800",
    "#5F6B73",
)
"""Colours of single jobs; neighbours in number differ."""
INK, MUTED, GRID, PAPER = "#1F2933", "#5F6B73", "#E3E8EC", "#FFFFFF"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif"
_CONFIG = {"displaylogo": False, "responsive": True, "modeBarButtonsToRemove": ["select2d", "lasso2d"]}


@dataclass(frozen=True, slots=True)
class Chart:
    """A figure and a sentence that says what it shows, and what it leaves out."""

    figure: go.Figure
    caption: str


@dataclass(frozen=True, slots=True)
class TimeUnit:
    """The unit of a time axis: its length in seconds, its symbol, and the axis's title."""

    seconds: float
    symbol: str
    title: str


def time_unit(last_s: float) -> TimeUnit:
    """Return seconds for an axis of up to some days, hours for a longer one."""
    symbol = "h" if last_s >= HOURS_FROM_S else "s"
    return TimeUnit(
        3600.0 if symbol == "h" else 1.0, symbol, f"time from the first due submission [{symbol}]"
    )


def safe(text: object) -> str:
    """Return a text from a file such that a chart shows it letter by letter (charts read some HTML)."""
    return html.escape(str(text), quote=False)


def run_style(number: int, *, simulated: bool = False) -> dict[str, str]:
    """Return colour and dash of the run with that number; simulated runs are dotted."""
    dashes = SIMULATED_DASHES if simulated else REAL_DASHES
    dash = dashes[number // len(RUN_COLOURS) % len(dashes)]
    return {"color": RUN_COLOURS[number % len(RUN_COLOURS)], "dash": dash}


def job_colour(number: int) -> str:
    """Return the colour of the job with that number."""
    return JOB_COLOURS[number % len(JOB_COLOURS)]


def arrange(figure: go.Figure, height_px: int, **layout: Any) -> go.Figure:
    """Give a figure the common look."""
    figure.update_layout(
        height=height_px,
        margin={"l": 64, "r": 44, "t": 40, "b": 52},
        paper_bgcolor=PAPER,
        plot_bgcolor=PAPER,
        font={"family": FONT, "size": 13, "color": INK},
        hoverlabel={"font": {"family": FONT, "size": 12}, "align": "left"},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.02, "xanchor": "left", "x": 0},
        hovermode="closest",
        modebar={"orientation": "v", "bgcolor": "rgba(255,255,255,0)", "color": "#A9B4BC"},
    )
    axis = {
        "gridcolor": GRID,
        "linecolor": MUTED,
        "zeroline": False,
        "ticks": "outside",
        "tickcolor": MUTED,
        "title_standoff": 10,
        "automargin": True,
    }
    figure.update_xaxes(**axis)
    figure.update_yaxes(**axis)
    figure.update_layout(**layout)
    return figure


def fragment(figure: go.Figure, name: str) -> str:
    """Return a figure as an HTML fragment that needs Plotly's script elsewhere on the page.

    Parameters
    ----------
    figure
        The figure.
    name
        Identifier of its element, unique on the page; the same page has the same bytes every time.
    """
    figure.update_xaxes(title_font_size=13)
    figure.update_yaxes(title_font_size=13)
    return str(
        figure.to_html(
            full_html=False,
            include_plotlyjs=False,
            div_id=name,
            config={**_CONFIG, "toImageButtonOptions": {"filename": name, "scale": 2}},
        )
    )
