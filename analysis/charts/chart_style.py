"""What all charts share: colours that colour-blind readers tell apart, one layout, safe texts, JSON."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from analysis.tables import HOURS_FROM_S

RUN_COLOURS = ("#0072B2", "#D55E00", "#00875F", "#C2659A", "#B87B00", "#2E93CC", "#7E6BB5", "#7A7A7A")
"""Colours of runs, after Okabe and Ito, dark or light enough for white and for dark paper (3 to 1); further
runs repeat them with another dash."""
REAL_DASHES, SIMULATED_DASHES = ("solid", "longdash"), ("dot", "dashdot")
KIND_NAMES = {"batch": "batch", "interactive": "interactive", "ondemand": "on-demand"}
KIND_COLOURS = {"batch": "#4C78A8", "interactive": "#B85C00", "ondemand": "#2E7D55"}
"""Each has a contrast of 4.5 to 1 with a white number."""
JOB_COLOURS = (
    "#4C78A8",
    "#B85C00",
    "#2E7D55",
    "#B4447F",
    "#8C6D31",
    "#1B7BB3",
    "#B2433F",
    "#7B61A8",
    "#7A7600",
    "#626E76",
)
"""Colours of single jobs; neighbours in number differ, and a white number can be read on them."""
INK, MUTED, GRID, PAPER = "#1F2933", "#55616A", "#E3E8EC", "#FFFFFF"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif"


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
        margin={"l": 64, "r": 24, "t": 40, "b": 52},
        paper_bgcolor=PAPER,
        plot_bgcolor=PAPER,
        font={"family": FONT, "size": 13, "color": INK},
        hoverlabel={"font": {"family": FONT, "size": 12}, "align": "left"},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.02, "xanchor": "left", "x": 0},
        hovermode="closest",
        colorway=RUN_COLOURS,
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


def figure_json(figure: go.Figure) -> str:
    """Return a figure as JSON in which no markup can begin, for the page's script to draw.

    Plotly's template is left out, so that every colour is one that is set here and has a twin in the dark
    scheme (``pages/assets/scheme.js``).
    """
    drawn = go.Figure(figure)
    drawn.update_layout(template=None)
    drawn.update_xaxes(title_font_size=13)
    drawn.update_yaxes(title_font_size=13)
    return str(drawn.to_json()).replace("<", "\\u003c")
